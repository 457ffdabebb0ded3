// Descriptors that a forked child must close.
#pragma once

namespace lockgate::fork_table {

// The child of a fork shares the parent's sockets and file locks: left open
// there, a lock would live on after the parent's death. Lock-free and safe at
// any moment of a fork; past 1024 descriptors it forgets, which is harmless.
void add(int fd) noexcept;
// Call before closing: the number may belong to something else an instant later.
void remove(int fd) noexcept;
// In the child.
void close_all() noexcept;

}  // namespace lockgate::fork_table
