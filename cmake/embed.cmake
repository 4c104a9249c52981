# Writes the bytes of INPUT into the C++ file OUTPUT, as what topocoll::FUNCTION() of HEADER returns.
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT} "#include \"${HEADER}\"

namespace topocoll {
namespace {

// The driver reads words of 8 bytes. The last byte is not handed out: no array is empty.
alignas(8) constexpr unsigned char kBytes[] = {${bytes} 0};

}  // namespace

std::span<const std::byte> ${FUNCTION}() {
  return {reinterpret_cast<const std::byte*>(kBytes), sizeof kBytes - 1};
}

}  // namespace topocoll
")
