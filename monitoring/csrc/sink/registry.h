// Every pipeline of the process: for forks and for the end.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

namespace lockgate {

class Pipeline;

// One object for the whole process, which lives until its end. Thread-safe.
//
// Before a fork it locks every ring, so that the child's copies are whole. In
// the child every ring becomes closed and empty; its memory stays, because the
// condition variables still count the parent's threads and must not be destroyed.
class Registry {
 public:
  static Registry& instance();

  void add(const std::shared_ptr<Pipeline>& pipeline);
  // Close every open pipeline, all within about `timeout` seconds.
  void close_all(double timeout);

 private:
  Registry();
  std::vector<std::shared_ptr<Pipeline>> alive();

  static void before_fork();
  static void in_parent();
  static void in_child();

  std::mutex mutex_;
  std::vector<std::weak_ptr<Pipeline>> pipelines_;
  std::vector<std::shared_ptr<Pipeline>> held_;    // while a fork is under way
  std::vector<std::shared_ptr<Pipeline>> buried_;  // in a child: the parent's
};

}  // namespace lockgate
