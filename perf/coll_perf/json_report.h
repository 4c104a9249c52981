// JsonReport: the file of -J, with nccl-tests' keys. Unlike nccl-tests' it never contains the
// environment.
//
// Thread rule: one thread. Failure rule: open() says why a file cannot be made; finish() why it
// cannot be written.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "coll_perf/table.h"
#include "topocoll/status.h"

namespace topocoll::perf {

class JsonReport {
 public:
  /// Makes `path`, or `path`.1 and so on where that exists: nothing is overwritten.
  static Result<JsonReport> open(const std::string& path);

  JsonReport(JsonReport&&) = default;
  JsonReport& operator=(JsonReport&&) = delete;
  /// Removes the file unless it has been written whole.
  ~JsonReport();

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Writes everything and closes the file.
  Status finish(const Arguments& arguments, const std::vector<RankInfo>& ranks,
                const std::vector<Row>& rows, const Summary& summary,
                const std::vector<std::string>& errors);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  JsonReport(std::unique_ptr<std::FILE, Close> file, std::string path);

  std::unique_ptr<std::FILE, Close> file_;
  std::string path_;
  std::string start_time_;
};

/// The report's text.
std::string render_json(const Arguments& arguments, const std::vector<RankInfo>& ranks,
                        const std::vector<Row>& rows, const Summary& summary,
                        const std::vector<std::string>& errors, const std::string& start_time,
                        const std::string& end_time);

}  // namespace topocoll::perf
