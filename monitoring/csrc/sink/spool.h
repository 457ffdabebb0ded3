// Blocks on disk while the sink is away.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "clickhouse/block.h"
#include "common/unique_fd.h"

namespace lockgate {

// A block read back from its file; the bytes live as long as this object.
class SpooledBlock {
 public:
  SpooledBlock(SpooledBlock&& other) noexcept;
  SpooledBlock& operator=(SpooledBlock&&) = delete;
  ~SpooledBlock();

  clickhouse::Block block;

 private:
  friend class Spool;
  SpooledBlock(void* memory, std::size_t size) noexcept : memory_(memory), size_(size) {}
  void* memory_;
  std::size_t size_;
};

// A bounded queue of blocks in files, one file each, oldest first.
//
// Each process writes into a folder of its own below `directory`, which it
// keeps locked while it lives. Folders whose lock is free were left by a
// process that ended: `adopt` takes them over when they were meant for the same
// target. A file appears under its name only when it is whole, and its checksum
// is compared when it is read. Not thread-safe (the drain thread's own);
// messages name paths, never contents. An empty `directory` is a spool that
// takes nothing.
class Spool {
 public:
  // Throws std::runtime_error when the folder cannot be made or written to.
  Spool(std::string directory, std::uint64_t capacity_bytes, std::string target);
  ~Spool();
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;

  bool enabled() const noexcept { return !directory_.empty(); }
  // Take over what ended processes left; how many blocks. Problems are put into `message`.
  std::size_t adopt(std::string& message);

  // Whether the block is on disk now. If not, `message` says why (full, disk error).
  bool append(const clickhouse::Block& block, std::string& message);

  struct Entry {
    std::string path;
    std::uint64_t file_bytes = 0;
    std::uint64_t rows = 0;
    std::uint64_t first_seq = 0;
    std::uint64_t payload_bytes = 0;
    bool adopted = false;  // from another process: not in this ring's account
  };
  bool empty() const noexcept { return entries_.empty(); }
  const Entry& front() const { return entries_.front(); }
  // Read the oldest block. Nothing when its file is damaged; `message` then says so.
  std::optional<SpooledBlock> read_front(std::string& message) const;
  // Remove the oldest block from the queue and the disk; with `damaged` its file is kept aside instead.
  void pop_front(bool damaged = false) noexcept;
  // Sequence number of this ring's oldest block on disk, if any.
  std::optional<std::uint64_t> oldest_own_seq() const noexcept;

  // Let go of the folders; empty ones are removed, the others wait for a later process.
  void close() noexcept;

 private:
  bool open_own_folder(std::string& message);
  void load_folder(const std::string& folder, std::string& message);

  std::string directory_;
  std::uint64_t capacity_bytes_;
  std::string target_hash_;
  std::string own_folder_;
  UniqueFd own_lock_;
  std::deque<std::pair<std::string, UniqueFd>> adopted_;  // folders and their locks
  std::deque<Entry> entries_;
  std::uint64_t used_bytes_ = 0;
  std::uint64_t next_ = 0;
};

}  // namespace lockgate
