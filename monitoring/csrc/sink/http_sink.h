// A ClickHouse server as a sink.
#pragma once

#include <atomic>
#include <utility>

#include "clickhouse/client.h"
#include "sink/sink.h"

namespace lockgate {

class HttpSink final : public Sink {
 public:
  explicit HttpSink(clickhouse::ClientSettings settings) : client_(std::move(settings)) {}

  Outcome send(const clickhouse::Block& block, Interrupt& interrupt) override;
  std::string target() const override { return client_.target(); }
  std::uint64_t reconnects() const noexcept override { return client_.reconnects(); }
  void finish() override { client_.disconnect(); }

 private:
  clickhouse::Client client_;
};

}  // namespace lockgate
