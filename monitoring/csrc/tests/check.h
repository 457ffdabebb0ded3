// The tests' harness: TEST(name) { CHECK(...); CHECK_EQUAL(a, b); CHECK_THROWS(expression, "part of the message"); }
#pragma once

#include <exception>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace check {

struct Case {
  const char* name;
  void (*body)();
};

inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

struct Add {
  Add(const char* name, void (*body)()) { cases().push_back({name, body}); }
};

struct Failure {
  std::string text;
};

[[noreturn]] inline void fail(const char* file, int line, const std::string& text) {
  throw Failure{std::string(file) + ":" + std::to_string(line) + ": " + text};
}

template <typename A, typename B>
void equal(const A& found, const B& expected, const char* what, const char* file, int line) {
  if (found == expected) return;
  std::ostringstream out;
  out << what << " is " << found << ", expected " << expected;
  fail(file, line, out.str());
}

template <typename Action>
void throws(Action action, std::string_view part, const char* what, const char* file, int line) {
  try {
    action();
  } catch (const std::exception& error) {
    if (std::string_view(error.what()).find(part) != std::string_view::npos) return;
    fail(file, line, std::string(what) + " threw '" + error.what() + "', expected '" + std::string(part) + "' in it");
  }
  fail(file, line, std::string(what) + " threw nothing");
}

// Runs every test, or those whose name holds an argument; the number of failures, 99 at most.
inline int run(int count, char** arguments) {
  int failed = 0;
  int ran = 0;
  for (const Case& each : cases()) {
    bool wanted = count < 2;
    for (int i = 1; i < count; ++i)
      wanted = wanted || std::string_view(each.name).find(arguments[i]) != std::string_view::npos;
    if (!wanted) continue;
    ++ran;
    try {
      each.body();
    } catch (const Failure& failure) {
      ++failed;
      std::cerr << "FAILED " << each.name << "\n  " << failure.text << "\n";
    } catch (const std::exception& error) {
      ++failed;
      std::cerr << "FAILED " << each.name << "\n  threw " << error.what() << "\n";
    }
  }
  std::cerr << ran << " tests, " << failed << " failed\n";
  if (ran == 0) return 99;
  return failed < 99 ? failed : 99;
}

}  // namespace check

#define TEST(name)                                         \
  static void test_##name();                               \
  static const check::Add add_##name(#name, &test_##name); \
  static void test_##name()
#define CHECK(condition) \
  ((condition) ? static_cast<void>(0) : check::fail(__FILE__, __LINE__, #condition " does not hold"))
#define CHECK_EQUAL(found, expected) check::equal((found), (expected), #found, __FILE__, __LINE__)
#define CHECK_THROWS(expression, part) \
  check::throws([&] { static_cast<void>(expression); }, part, #expression, __FILE__, __LINE__)
#define TEST_MAIN \
  int main(int count, char** arguments) { return check::run(count, arguments); }
