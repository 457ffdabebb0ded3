// What several tests need: sinks to steer, folders that go away, waiting with a limit.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "sink/sink.h"

namespace lockgate::testing {

// Gives the verdict that the test sets, and keeps the bytes of what it took.
class SteeredSink final : public Sink {
 public:
  Outcome send(const clickhouse::Block& block, Interrupt&) override {
    ++attempts;
    const Verdict chosen = verdict;
    if (chosen == Verdict::kWritten) {
      std::vector<std::byte> bytes(block.size());
      block.gather(bytes.data());
      const std::lock_guard lock(mutex);
      blocks.push_back(std::move(bytes));
      tokens.push_back(block.token);
      rows += block.rows;
    }
    return {chosen, chosen == Verdict::kWritten ? "" : "told so"};
  }
  std::string target() const override { return name; }

  std::atomic<Verdict> verdict{Verdict::kWritten};
  std::atomic<std::uint64_t> attempts{0};
  std::atomic<std::uint64_t> rows{0};
  std::string name = "steered";
  std::mutex mutex;
  std::vector<std::vector<std::byte>> blocks;
  std::vector<std::string> tokens;
};

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lockgate-test-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  // Files with this ending, anywhere below.
  std::vector<std::string> files(const std::string& ending) const {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path_)) {
      if (entry.is_regular_file() && entry.path().string().ends_with(ending)) out.push_back(entry.path().string());
    }
    return out;
  }

 private:
  std::string path_;
};

inline bool eventually(const std::function<bool()>& condition, double seconds = 20.0) {
  const Deadline limit = Deadline::after(seconds);
  while (!condition()) {
    if (limit.passed()) return condition();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace lockgate::testing
