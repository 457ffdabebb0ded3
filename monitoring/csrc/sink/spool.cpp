#include "sink/spool.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "common/checksum.h"
#include "common/clock.h"

namespace lockgate {

namespace fs = std::filesystem;

namespace {

constexpr char kMagic[8] = {'L', 'G', 'S', 'P', 'O', 'O', 'L', '1'};
constexpr const char* kSuffix = ".block";

// What stands before the block in a file. The layout is read by later versions.
struct FileHeader {
  char magic[8];
  std::uint64_t body_bytes;
  std::uint64_t checksum;
  std::uint64_t rows;
  std::uint64_t first_seq;
  std::uint64_t payload_bytes;
  char token[80];
};
static_assert(sizeof(FileHeader) == 128 && std::is_trivially_copyable_v<FileHeader>);

std::string reason(int error) { return std::strerror(error); }

std::string hash_of(const std::string& text) {
  Checksum sum;
  sum.add(text.data(), text.size());
  char out[17];
  std::snprintf(out, sizeof out, "%016llx", static_cast<unsigned long long>(sum.value()));
  return out;
}

// All of it, whatever the number of calls that it takes; 0 or the error's number.
int write_all(int fd, const clickhouse::Segment& segment) noexcept {
  const std::byte* data = segment.data;
  std::size_t left = segment.size;
  while (left > 0) {
    const ssize_t done = ::write(fd, data, left);
    if (done < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    data += done;
    left -= static_cast<std::size_t>(done);
  }
  return 0;
}

UniqueFd lock_folder(const std::string& folder, bool create) {
  const std::string path = folder + "/lock";
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0600));
  if (fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) fd.reset();
  return fd;
}

// Remove the folder if nothing but its lock is in it.
void remove_folder(const std::string& folder) noexcept {
  std::error_code error;
  std::size_t entries = 0;
  for (fs::directory_iterator each(folder, error); !error && each != fs::directory_iterator(); each.increment(error))
    ++entries;
  if (error || entries > 1) return;
  ::unlink((folder + "/lock").c_str());
  ::rmdir(folder.c_str());
}

}  // namespace

SpooledBlock::SpooledBlock(SpooledBlock&& other) noexcept
    : block(std::move(other.block)), memory_(std::exchange(other.memory_, nullptr)), size_(other.size_) {}

SpooledBlock::~SpooledBlock() {
  if (memory_ != nullptr) ::munmap(memory_, size_);
}

Spool::Spool(std::string directory, std::uint64_t capacity_bytes, std::string target)
    : directory_(std::move(directory)), capacity_bytes_(capacity_bytes), target_hash_(hash_of(target)) {
  if (!enabled()) return;
  std::error_code error;
  fs::create_directories(directory_, error);
  if (!fs::is_directory(directory_)) {
    throw std::runtime_error("the spool folder " + directory_ +
                             " cannot be made: " + (error ? error.message() : "there is a file of that name"));
  }
  if (::access(directory_.c_str(), W_OK | X_OK) != 0) {
    throw std::runtime_error("the spool folder " + directory_ + " cannot be written to: " + reason(errno));
  }
}

Spool::~Spool() { close(); }

void Spool::close() noexcept {
  for (const auto& [folder, lock] : adopted_) remove_folder(folder);
  adopted_.clear();
  if (!own_folder_.empty()) remove_folder(own_folder_);
  own_folder_.clear();
  own_lock_.reset();
  entries_.clear();
  used_bytes_ = 0;
}

std::size_t Spool::adopt(std::string& message) {
  if (!enabled()) return 0;
  std::vector<std::string> folders;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_, error)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name.size() > target_hash_.size() && name.ends_with("-" + target_hash_);
    if (ours && entry.path().string() != own_folder_ && entry.is_directory(error))
      folders.push_back(entry.path().string());
  }
  if (error) message = "the spool folder " + directory_ + " cannot be read: " + error.message();
  std::sort(folders.begin(), folders.end());  // names begin with the time: oldest process first
  const std::size_t before = entries_.size();
  for (const std::string& folder : folders) {
    UniqueFd lock = lock_folder(folder, false);
    if (!lock) continue;  // its process lives, or took it over itself
    load_folder(folder, message);
    adopted_.emplace_back(folder, std::move(lock));
  }
  return entries_.size() - before;
}

void Spool::load_folder(const std::string& folder, std::string& message) {
  std::vector<Entry> found;
  std::error_code error;
  for (const fs::directory_entry& file : fs::directory_iterator(folder, error)) {
    const std::string path = file.path().string();
    if (path.ends_with(".part")) {
      ::unlink(path.c_str());  // never was whole: its rows were still in the ended process's account
      continue;
    }
    if (!path.ends_with(kSuffix)) continue;
    FileHeader header{};
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status {};
    const bool whole = fd && ::read(fd.get(), &header, sizeof header) == static_cast<ssize_t>(sizeof header) &&
                       std::memcmp(header.magic, kMagic, sizeof kMagic) == 0 && ::fstat(fd.get(), &status) == 0 &&
                       static_cast<std::uint64_t>(status.st_size) == sizeof header + header.body_bytes;
    if (!whole) {
      message = "the spool file " + path + " is damaged and was kept as " + path + ".damaged";
      ::rename(path.c_str(), (path + ".damaged").c_str());
      continue;
    }
    found.push_back(
        {path, static_cast<std::uint64_t>(status.st_size), header.rows, header.first_seq, header.payload_bytes, true});
  }
  if (error) message = "the spool folder " + folder + " cannot be read: " + error.message();
  std::sort(found.begin(), found.end(), [](const Entry& a, const Entry& b) { return a.path < b.path; });
  for (Entry& entry : found) {
    used_bytes_ += entry.file_bytes;
    entries_.push_back(std::move(entry));
  }
}

bool Spool::open_own_folder(std::string& message) {
  if (!own_folder_.empty()) return true;
  char name[64];
  std::snprintf(name, sizeof name, "/%020llu-%d-", static_cast<unsigned long long>(wall_nanoseconds()), ::getpid());
  const std::string folder = directory_ + name + target_hash_;
  if (::mkdir(folder.c_str(), 0700) != 0) {
    message = "the spool folder " + folder + " cannot be made: " + reason(errno);
    return false;
  }
  own_lock_ = lock_folder(folder, true);
  if (!own_lock_) {
    message = "the spool folder " + folder + " cannot be locked: " + reason(errno);
    remove_folder(folder);
    return false;
  }
  own_folder_ = folder;
  return true;
}

bool Spool::append(const clickhouse::Block& block, std::string& message) {
  if (!enabled()) return false;
  const std::uint64_t file_bytes = sizeof(FileHeader) + block.size();
  if (used_bytes_ + file_bytes > capacity_bytes_) {
    message = "the spool " + directory_ + " is full: " + std::to_string(used_bytes_) + " of " +
              std::to_string(capacity_bytes_) + " bytes are taken and a block needs " + std::to_string(file_bytes);
    return false;
  }
  if (!open_own_folder(message)) return false;

  FileHeader header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.body_bytes = block.size();
  header.rows = block.rows;
  header.first_seq = block.first_seq;
  header.payload_bytes = block.payload_bytes;
  block.token.copy(header.token, sizeof header.token - 1);
  Checksum sum;
  for (const clickhouse::Segment& segment : block.segments()) sum.add(segment.data, segment.size);
  header.checksum = sum.value();

  char name[32];
  std::snprintf(name, sizeof name, "/%012llu", static_cast<unsigned long long>(next_));
  const std::string path = own_folder_ + name + kSuffix;
  const std::string part = path + ".part";
  int error = 0;
  {
    const UniqueFd fd(::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd) error = errno;
    if (error == 0) error = write_all(fd.get(), {reinterpret_cast<const std::byte*>(&header), sizeof header});
    for (const clickhouse::Segment& segment : block.segments()) {
      if (error == 0) error = write_all(fd.get(), segment);
    }
  }
  if (error == 0 && ::rename(part.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlink(part.c_str());
    message = "the spool file " + path + " cannot be written: " + reason(error);
    return false;
  }
  ++next_;
  used_bytes_ += file_bytes;
  entries_.push_back({path, file_bytes, block.rows, block.first_seq, block.payload_bytes, false});
  return true;
}

std::optional<SpooledBlock> Spool::read_front(std::string& message) const {
  const Entry& entry = entries_.front();
  const auto damaged = [&](const std::string& why) -> std::optional<SpooledBlock> {
    message = "the spool file " + entry.path + " " + why + "; its " + std::to_string(entry.rows) + " rows are lost";
    return std::nullopt;
  };
  const UniqueFd fd(::open(entry.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return damaged("cannot be opened: " + reason(errno));
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0 || static_cast<std::uint64_t>(status.st_size) != entry.file_bytes) {
    return damaged("has another size than it was written with");
  }
  void* memory = ::mmap(nullptr, entry.file_bytes, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd.get(), 0);
  if (memory == MAP_FAILED) return damaged("cannot be read: " + reason(errno));
  SpooledBlock out(memory, entry.file_bytes);
  FileHeader header{};
  std::memcpy(&header, memory, sizeof header);
  const std::byte* body = static_cast<const std::byte*>(memory) + sizeof header;
  Checksum sum;
  sum.add(body, entry.file_bytes - sizeof header);
  if (sum.value() != header.checksum || std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) {
    return damaged("is damaged (its checksum differs)");
  }
  header.token[sizeof header.token - 1] = '\0';
  out.block = clickhouse::view_block(body, entry.file_bytes - sizeof header);
  out.block.rows = header.rows;
  out.block.first_seq = header.first_seq;
  out.block.payload_bytes = header.payload_bytes;
  out.block.token = header.token;
  return out;
}

void Spool::pop_front(bool damaged) noexcept {
  const Entry& entry = entries_.front();
  if (damaged) {
    ::rename(entry.path.c_str(), (entry.path + ".damaged").c_str());
  } else {
    ::unlink(entry.path.c_str());
  }
  used_bytes_ -= std::min(used_bytes_, entry.file_bytes);
  entries_.pop_front();
}

std::optional<std::uint64_t> Spool::oldest_own_seq() const noexcept {
  for (const Entry& entry : entries_) {
    if (!entry.adopted) return entry.first_seq;
  }
  return std::nullopt;
}

}  // namespace lockgate
