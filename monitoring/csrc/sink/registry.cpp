#include "sink/registry.h"

#include <pthread.h>

#include <algorithm>

#include "common/clock.h"
#include "common/fork_table.h"
#include "sink/pipeline.h"

namespace lockgate {

Registry& Registry::instance() {
  // Never destroyed: a detached drain thread may outlive the static objects.
  static Registry* const registry = new Registry;
  return *registry;
}

Registry::Registry() { ::pthread_atfork(&before_fork, &in_parent, &in_child); }

void Registry::add(const std::shared_ptr<Pipeline>& pipeline) {
  const std::lock_guard lock(mutex_);
  std::erase_if(pipelines_, [](const std::weak_ptr<Pipeline>& each) { return each.expired(); });
  pipelines_.push_back(pipeline);
}

std::vector<std::shared_ptr<Pipeline>> Registry::alive() {
  std::vector<std::shared_ptr<Pipeline>> out;
  for (const std::weak_ptr<Pipeline>& each : pipelines_) {
    if (auto pipeline = each.lock()) out.push_back(std::move(pipeline));
  }
  return out;
}

void Registry::close_all(double timeout) {
  std::vector<std::shared_ptr<Pipeline>> open;
  {
    const std::lock_guard lock(mutex_);
    open = alive();
    for (const auto& pipeline : buried_) pipeline->drop_callbacks();
  }
  const Deadline limit = Deadline::after(timeout);
  for (const auto& pipeline : open) pipeline->close(limit.milliseconds() / 1000.0);
}

void Registry::before_fork() {
  Registry& self = instance();
  self.mutex_.lock();
  self.held_ = self.alive();
  for (const auto& pipeline : self.held_) pipeline->lock_for_fork();
}

void Registry::in_parent() {
  Registry& self = instance();
  for (const auto& pipeline : self.held_) pipeline->unlock_after_fork();
  self.held_.clear();
  self.mutex_.unlock();
}

void Registry::in_child() {
  Registry& self = instance();
  for (const auto& pipeline : self.held_) {
    pipeline->become_child();
    pipeline->unlock_after_fork();
  }
  fork_table::close_all();
  // A grandchild's fork must neither lock nor touch them again, and nothing destroys them.
  self.buried_.insert(self.buried_.end(), self.held_.begin(), self.held_.end());
  self.held_.clear();
  self.pipelines_.clear();
  self.mutex_.unlock();
}

}  // namespace lockgate
