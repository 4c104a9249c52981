// View: how a caller's buffer is cut into a plan's chunks, window after window.
//
// Striped buffers (all_reduce, broadcast, reduce): the message is cut into windows, and each window into
// the plan's chunks. Blocked buffers (the others): the caller has one block for each rank; a window is the
// next part of every block, and each part is cut into the plan's chunks: chunk r * chunks + c is piece c
// of block r.
// Thread rule: a value; points into the caller's memory.
#pragma once

#include <algorithm>
#include <cstddef>

#include "topocoll/operation.h"

namespace topocoll {

/// A contiguous run of elements.
struct Piece {
  std::byte* data = nullptr;
  std::size_t count = 0;
};

/// n blocks of a caller: evenly spaced, or listed.
class Blocks {
 public:
  Blocks() = default;
  Blocks(const void* base, std::size_t count, std::size_t element)
      : base_(static_cast<std::byte*>(const_cast<void*>(base))), count_(count), element_(element) {}
  explicit Blocks(const ConstBlock* list) : in_list_(list) {}
  explicit Blocks(const Block* list) : out_list_(list) {}

  [[nodiscard]] Piece operator[](int i) const {
    const auto at = static_cast<std::size_t>(i);
    if (in_list_ != nullptr) {
      return {static_cast<std::byte*>(const_cast<void*>(in_list_[at].data)), in_list_[at].count};
    }
    if (out_list_ != nullptr) return {static_cast<std::byte*>(out_list_[at].data), out_list_[at].count};
    // A rank without this buffer (gather away from the root) has no base to count from.
    return {base_ == nullptr ? nullptr : base_ + at * count_ * element_, count_};
  }

 private:
  std::byte* base_ = nullptr;
  std::size_t count_ = 0;
  std::size_t element_ = 0;
  const ConstBlock* in_list_ = nullptr;
  const Block* out_list_ = nullptr;
};

class View {
 public:
  View() = default;
  static View striped(const void* base, std::size_t count) {
    View v;
    v.base_ = static_cast<std::byte*>(const_cast<void*>(base));
    v.count_ = count;
    return v;
  }
  static View blocked(Blocks blocks) {
    View v;
    v.striped_ = false;
    v.blocks_ = blocks;
    return v;
  }

  /// Chunk `chunk` of `chunks` in window `window` of `window_count` elements (striped: of the message;
  /// blocked: of each block). Pieces of a window start at multiples of `grain` elements.
  [[nodiscard]] Piece piece(int chunk, int chunks, std::size_t window, std::size_t window_count,
                            std::size_t grain, std::size_t element) const {
    const std::size_t start = window * window_count;
    const Piece whole = striped_ ? Piece{base_, count_} : blocks_[chunk / chunks];
    if (start >= whole.count) return {};
    const std::size_t here = std::min(window_count, whole.count - start);
    const std::size_t each = stripe(here, chunks, grain);
    const int piece = striped_ ? chunk : chunk % chunks;
    const std::size_t from = std::min(here, static_cast<std::size_t>(piece) * each);
    return {whole.data + (start + from) * element, std::min(each, here - from)};
  }

  /// Elements of the largest chunk of a striped window.
  static std::size_t stripe(std::size_t window_count, int chunks, std::size_t grain) {
    const auto n = static_cast<std::size_t>(chunks);
    const std::size_t each = (window_count + n - 1) / n;
    return (each + grain - 1) / grain * grain;
  }

 private:
  bool striped_ = true;
  std::byte* base_ = nullptr;
  std::size_t count_ = 0;
  Blocks blocks_;
};

}  // namespace topocoll
