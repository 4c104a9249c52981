#include "collectives/cpu/view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <vector>

#include "collectives/cpu/pipeline.h"

namespace topocoll {
namespace {

/// Every element of a striped buffer lies in exactly one piece, in order, on a grain.
void expect_covered(std::size_t count, int chunks, std::size_t window_count, std::size_t element) {
  const std::size_t grain = grain_of(element);
  std::vector<std::byte> buffer(count * element + 1);
  const View view = View::striped(buffer.data(), count);
  const std::size_t windows = window_count == 0 ? 0 : (count + window_count - 1) / window_count;
  const std::byte* next = buffer.data();
  for (std::size_t w = 0; w < windows; ++w) {
    for (int c = 0; c < chunks; ++c) {
      const Piece p = view.piece(c, chunks, w, window_count, grain, element);
      ASSERT_LE(p.count, View::stripe(window_count, chunks, grain)) << "fits into a cell";
      if (p.count == 0) continue;
      ASSERT_EQ(p.data, next) << count << " elements, window " << w << ", chunk " << c;
      ASSERT_EQ(static_cast<std::size_t>(p.data - buffer.data()) / element % window_count % grain,
                0u);
      next = p.data + p.count * element;
    }
  }
  ASSERT_EQ(next, buffer.data() + count * element);
  EXPECT_EQ(view.piece(0, chunks, windows, window_count, grain, element).count, 0u)
      << "past the end";
}

TEST(View, StripesCoverTheMessageOnce) {
  for (const std::size_t element : {1u, 2u, 4u, 8u, 16u}) {
    for (const int chunks : {1, 2, 3, 5, 8}) {
      const std::size_t window = 64 / element * static_cast<std::size_t>(chunks) * 2;
      for (const std::size_t count : {std::size_t(1), std::size_t(7), window - 1, window,
                                      window + 1, 3 * window - 5, 5 * window}) {
        expect_covered(count, chunks, window, element);
      }
    }
  }
}

TEST(View, AnEmptyMessageHasNoPieces) {
  EXPECT_EQ(View::striped(nullptr, 0).piece(0, 1, 0, 64, 16, 4).count, 0u);
}

TEST(View, GrainIsACacheLineOfElements) {
  EXPECT_EQ(grain_of(1), 64u);
  EXPECT_EQ(grain_of(4), 16u);
  EXPECT_EQ(grain_of(16), 4u);
  EXPECT_EQ(grain_of(64), 1u);
  EXPECT_EQ(grain_of(100), 1u);
}

TEST(View, BlocksAreCutEachForItself) {
  std::array<std::byte, 100> memory{};
  const std::array<Block, 3> list{{{memory.data(), 10}, {memory.data() + 40, 3}, {nullptr, 0}}};
  const View view = View::blocked(Blocks(list.data()));
  const auto piece = [&](int chunk, std::size_t window) {
    return view.piece(chunk, 1, window, 4, 1, 2);
  };
  EXPECT_EQ(piece(0, 0).data, memory.data());
  EXPECT_EQ(piece(0, 0).count, 4u);
  EXPECT_EQ(piece(0, 2).data, memory.data() + 16);
  EXPECT_EQ(piece(0, 2).count, 2u);
  EXPECT_EQ(piece(0, 3).count, 0u);
  EXPECT_EQ(piece(1, 0).count, 3u);
  EXPECT_EQ(piece(1, 1).count, 0u);
  EXPECT_EQ(piece(2, 0).count, 0u);
}

TEST(View, BlocksHavePieces) {
  std::array<std::byte, 100> memory{};
  const std::array<Block, 2> list{{{memory.data(), 10}, {memory.data() + 40, 7}}};
  const View view = View::blocked(Blocks(list.data()));
  // Windows of 6 elements of 2 bytes, each in 3 pieces.
  const auto piece = [&](int block, int number, std::size_t window) {
    return view.piece(block * 3 + number, 3, window, 6, 1, 2);
  };
  EXPECT_EQ(piece(0, 1, 0).data, memory.data() + 4);
  EXPECT_EQ(piece(0, 2, 0).count, 2u);
  EXPECT_EQ(piece(0, 1, 1).data, memory.data() + 16);
  EXPECT_EQ(piece(0, 1, 1).count, 2u);
  EXPECT_EQ(piece(0, 2, 1).count, 0u) << "four elements in stripes of two";
  EXPECT_EQ(piece(1, 0, 1).data, memory.data() + 52);
  EXPECT_EQ(piece(1, 0, 1).count, 1u);
  EXPECT_EQ(piece(1, 1, 1).count, 0u);
}

TEST(Blocks, EvenBlocksFollowOneAnother) {
  std::array<std::byte, 64> memory{};
  const Blocks blocks(memory.data(), 5, 4);
  EXPECT_EQ(blocks[0].data, memory.data());
  EXPECT_EQ(blocks[2].data, memory.data() + 40);
  EXPECT_EQ(blocks[2].count, 5u);
  const Blocks none(nullptr, 5, 4);
  EXPECT_EQ(none[2].data, nullptr) << "a rank without this buffer";
  EXPECT_EQ(none[2].count, 5u);
  const std::array<ConstBlock, 2> list{{{memory.data(), 1}, {memory.data() + 9, 2}}};
  EXPECT_EQ(Blocks(list.data())[1].data, memory.data() + 9);
  EXPECT_EQ(Blocks(list.data())[1].count, 2u);
}

}  // namespace
}  // namespace topocoll
