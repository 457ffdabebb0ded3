#include "sink/spool.h"

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "check.h"
#include "clickhouse/encoder.h"
#include "support.h"

using namespace lockgate;
using lockgate::testing::TemporaryFolder;

static clickhouse::Block block_of(std::uint64_t seq, std::size_t nbytes = 100) {
  static const std::vector<std::byte> memory(1 << 20, std::byte{9});
  static const std::uint32_t shape[1] = {1};
  clickhouse::Row row;
  row.seq = seq;
  row.dims = 1;
  row.shape = shape;
  row.data = memory.data();
  row.nbytes = nbytes;
  clickhouse::Block block = clickhouse::Encoder("r", "m").encode({&row, 1}, 1, false);
  block.token = "token-" + std::to_string(seq);
  return block;
}

static std::vector<std::byte> flat(const clickhouse::Block& block) {
  std::vector<std::byte> out(block.size());
  block.gather(out.data());
  return out;
}

TEST(blocks_come_back_as_they_went_in_and_leave_nothing_behind) {
  const TemporaryFolder folder;
  {
    Spool spool(folder.path() + "/deep/er", 1 << 20, "here");
    std::string message;
    for (std::uint64_t seq = 0; seq < 12; ++seq) CHECK(spool.append(block_of(seq, 20000), message));
    CHECK_EQUAL(*spool.oldest_own_seq(), 0u);
    for (std::uint64_t seq = 0; seq < 12; ++seq) {
      const auto read = spool.read_front(message);
      CHECK(read.has_value());
      CHECK(flat(read->block) == flat(block_of(seq, 20000)));
      CHECK_EQUAL(read->block.token, "token-" + std::to_string(seq));
      CHECK_EQUAL(read->block.first_seq, seq);
      CHECK_EQUAL(read->block.rows, 1u);
      CHECK_EQUAL(read->block.payload_bytes, 20000u);
      spool.pop_front();
    }
    CHECK(spool.empty());
    CHECK_EQUAL(message, "");
  }
  CHECK(std::filesystem::is_empty(folder.path() + "/deep/er"));
}

TEST(the_bound_holds) {
  const TemporaryFolder folder;
  Spool spool(folder.path(), 50000, "here");
  std::string message;
  CHECK(spool.append(block_of(0, 20000), message));
  CHECK(spool.append(block_of(1, 20000), message));
  CHECK(!spool.append(block_of(2, 20000), message));
  CHECK(message.find("is full") != std::string::npos);
  spool.pop_front();
  CHECK(spool.append(block_of(3, 20000), message));
}

TEST(without_a_folder_it_takes_nothing) {
  Spool spool("", 1 << 20, "here");
  std::string message;
  CHECK(!spool.enabled());
  CHECK(!spool.append(block_of(0), message));
  CHECK_EQUAL(spool.adopt(message), 0u);
}

TEST(what_an_ended_process_left_is_taken_over_once_by_the_same_target) {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    Spool spool(folder.path(), 1 << 20, "here");
    std::string message;
    spool.append(block_of(5), message);
    spool.append(block_of(6), message);
    ::_exit(message.empty() ? 0 : 1);
  }
  int status = 0;
  CHECK_EQUAL(::waitpid(child, &status, 0), child);
  CHECK_EQUAL(status, 0);
  std::string message;
  Spool other(folder.path(), 1 << 20, "elsewhere");
  CHECK_EQUAL(other.adopt(message), 0u);
  {
    Spool heir(folder.path(), 1 << 20, "here");
    CHECK_EQUAL(heir.adopt(message), 2u);
    Spool late(folder.path(), 1 << 20, "here");
    CHECK_EQUAL(late.adopt(message), 0u);
    CHECK(heir.front().adopted);
    CHECK(!heir.oldest_own_seq().has_value());
    CHECK_EQUAL(heir.read_front(message)->block.first_seq, 5u);
    heir.pop_front();
  }
  Spool next(folder.path(), 1 << 20, "here");
  CHECK_EQUAL(next.adopt(message), 1u);
  CHECK_EQUAL(next.front().first_seq, 6u);
  CHECK_EQUAL(message, "");
}

TEST(half_written_and_damaged_files_are_kept_aside) {
  const TemporaryFolder folder;
  std::string message;
  {
    Spool spool(folder.path(), 1 << 20, "here");
    for (std::uint64_t seq = 0; seq < 3; ++seq) spool.append(block_of(seq), message);
    const auto files = folder.files(".block");
    CHECK_EQUAL(files.size(), 3u);
    std::filesystem::resize_file(*std::min_element(files.begin(), files.end()), 40);
    const std::string part = files.front() + ".part";
    std::filesystem::copy_file(files.back(), part);
  }
  Spool heir(folder.path(), 1 << 20, "here");
  CHECK_EQUAL(heir.adopt(message), 2u);
  CHECK(message.find("is damaged and was kept as") != std::string::npos);
  CHECK(folder.files(".part").empty());
  CHECK_EQUAL(folder.files(".damaged").size(), 1u);
  CHECK_EQUAL(heir.front().first_seq, 1u);
}

TEST(a_folder_that_cannot_be_made_is_an_error) {
  CHECK_THROWS(Spool("/proc/no/such", 1, "here"), "/proc/no/such cannot be made");
}

TEST_MAIN
