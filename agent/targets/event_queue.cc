// SPDX-License-Identifier: Apache-2.0
#include "agent/targets/event_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace headgate {

bool EventQueue::add(const std::string& key, KubeEvent event, Instant now) {
  auto found = objects_.find(key);
  if (found == objects_.end()) {
    if (!event.warning) {
      return true;
    }
    forget_the_quiet(now);
    if (objects_.size() >= kMostObjects) {
      ++dropped_;
      return false;
    }
    found = objects_.try_emplace(key).first;
  }
  Object& object = found->second;
  if (!object.waiting) {
    if (!event.warning && !object.told_warning) {
      return true;
    }
    const std::int64_t at = event.unix_us;
    object.waiting = Due{key, std::move(event), at, now};
    return true;
  }
  Due& waiting = *object.waiting;
  waiting.last_unix_us = event.unix_us;
  waiting.since = now;
  event.times += waiting.event.times;
  event.unix_us = waiting.event.unix_us;
  waiting.event = std::move(event);
  ++merged_;
  return true;
}

std::optional<EventQueue::Due> EventQueue::take(Instant now) {
  Object* oldest = nullptr;
  for (auto& [key, object] : objects_) {
    if (object.waiting && now - object.waiting->since > kTooOld) {
      object.waiting.reset();
      ++dropped_;
    }
    if (object.waiting && object.quiet_until <= now &&
        (oldest == nullptr || object.waiting->since < oldest->waiting->since)) {
      oldest = &object;
    }
  }
  if (oldest == nullptr) {
    return std::nullopt;
  }
  oldest->quiet_until = now + kQuiet;
  oldest->told_warning = oldest->waiting->event.warning;
  std::optional<Due> out = std::move(oldest->waiting);
  oldest->waiting.reset();
  return out;
}

void EventQueue::put_back(Due due, Instant now) {
  Object& object = objects_[due.key];
  object.quiet_until = now;
  if (object.waiting) {
    object.waiting->event.times += due.event.times;
    object.waiting->event.unix_us = due.event.unix_us;
    ++merged_;
    return;
  }
  object.waiting = std::move(due);
}

std::optional<Instant> EventQueue::next() const {
  std::optional<Instant> out;
  for (const auto& [key, object] : objects_) {
    if (object.waiting && (!out || object.quiet_until < *out)) {
      out = object.quiet_until;
    }
  }
  return out;
}

/// Of whom nothing waits and nothing bad was told last: they are as if never seen.
void EventQueue::forget_the_quiet(Instant now) {
  for (auto it = objects_.begin(); it != objects_.end();) {
    const Object& object = it->second;
    const bool done = !object.waiting && !object.told_warning && object.quiet_until <= now;
    it = done ? objects_.erase(it) : std::next(it);
  }
}

}  // namespace headgate
