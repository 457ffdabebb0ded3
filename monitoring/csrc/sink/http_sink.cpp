#include "sink/http_sink.h"

namespace lockgate {

Outcome HttpSink::send(const clickhouse::Block& block, Interrupt& interrupt) {
  clickhouse::InsertResult result = client_.insert(block, interrupt);
  switch (result.answer) {
    case clickhouse::Answer::kDone:
      return {};
    case clickhouse::Answer::kAgain:
      return {Verdict::kRetry, std::move(result.message)};
    case clickhouse::Answer::kNever:
      return {Verdict::kFatal, std::move(result.message)};
  }
  return {Verdict::kFatal, "unreachable"};
}

}  // namespace lockgate
