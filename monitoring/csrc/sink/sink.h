// Where the drain thread hands its blocks.
#pragma once

#include <cstdint>
#include <string>

#include "clickhouse/block.h"
#include "common/interrupt.h"

namespace lockgate {

enum class Verdict {
  kWritten,
  kRetry,  // the same block may succeed later
  kFatal,  // this block can never be written
};

struct Outcome {
  Verdict verdict = Verdict::kWritten;
  std::string message;  // what happened, without credentials
};

// Used by one drain thread. A problem is an Outcome, never an exception; methods
// are not noexcept, because a thread that an ending interpreter stops inside a
// callback unwinds through them.
class Sink {
 public:
  Sink() = default;
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  virtual ~Sink() = default;

  // Write the whole block. Waits end when `interrupt` says so.
  virtual Outcome send(const clickhouse::Block& block, Interrupt& interrupt) = 0;
  // Where it writes, without credentials.
  virtual std::string target() const = 0;
  virtual std::uint64_t reconnects() const noexcept { return 0; }
  // No block will come any more; let go of connections and callbacks.
  virtual void finish() {}
  // At the end of a forked child, where `finish` would touch the parent's descriptors.
  virtual void drop_callbacks() {}
};

}  // namespace lockgate
