// A sink that forgets.
#pragma once

#include "sink/sink.h"

namespace lockgate {

class NullSink final : public Sink {
 public:
  Outcome send(const clickhouse::Block&, Interrupt&) override { return {}; }
  std::string target() const override { return "null"; }
};

}  // namespace lockgate
