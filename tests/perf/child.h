// Runs a program and returns what it wrote and how it ended.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace topocoll {

struct Finished {
  int status = -1;  ///< exit status, or 128 + signal
  std::string out;
  std::string err;
};

/// A running program with pipes on its standard output and error.
class Child {
 public:
  explicit Child(const std::vector<std::string>& command,
                 const std::vector<std::pair<std::string, std::string>>& environment = {}) {
    int out[2];
    int err[2];
    if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(out[1], STDOUT_FILENO);
      ::dup2(err[1], STDERR_FILENO);
      for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
      std::vector<char*> argv;
      for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
      argv.push_back(nullptr);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(out[1]);
    ::close(err[1]);
    out_ = out[0];
    err_ = err[0];
  }
  ~Child() {
    close_output();
    if (err_ >= 0) ::close(err_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Stops reading, as `head` does.
  void close_output() {
    if (out_ >= 0) ::close(out_);
    out_ = -1;
  }
  /// Reads standard output until `text` has come, or its end.
  bool wait_for(const std::string& text) {
    char c = 0;
    while (result_.out.find(text) == std::string::npos) {
      if (::read(out_, &c, 1) != 1) return false;
      result_.out += c;
    }
    return true;
  }
  /// Reads both pipes to their end and waits for the program.
  Finished finish() {
    char bytes[4096];
    while (out_ >= 0 || err_ >= 0) {
      pollfd fds[2] = {{out_, POLLIN, 0}, {err_, POLLIN, 0}};
      if (::poll(fds, 2, -1) < 0) continue;
      for (const bool error : {false, true}) {
        if (fds[error ? 1 : 0].revents == 0) continue;
        int& fd = error ? err_ : out_;
        const ssize_t got = ::read(fd, bytes, sizeof bytes);
        if (got > 0) {
          (error ? result_.err : result_.out).append(bytes, static_cast<std::size_t>(got));
        } else {
          ::close(fd);
          fd = -1;
        }
      }
    }
    int status = 0;
    ::waitpid(pid_, &status, 0);
    result_.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return result_;
  }

 private:
  pid_t pid_ = -1;
  int out_ = -1;
  int err_ = -1;
  Finished result_;
};

inline Finished run(const std::vector<std::string>& command,
                    const std::vector<std::pair<std::string, std::string>>& environment = {}) {
  return Child(command, environment).finish();
}

}  // namespace topocoll
