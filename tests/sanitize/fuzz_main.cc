// Runs the parts of the fuzz target on random inputs.
//
//   fuzz SECONDS     the same inputs in each run, as many as there is time for
//   fuzz -r FILE...  these inputs
//
// An input that fails is left in the file crash-input.

#include <sanitizer/common_interface_defs.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "tests/sanitize/fuzz.h"

// The sanitizer then reports a failed check too, and saves the input.
extern "C" const char* __asan_default_options() { return "handle_abort=1"; }

namespace tf_gc {
namespace {

Bytes current;

void SaveCurrent() {
  std::ofstream file("crash-input", std::ios::binary);
  file.write(reinterpret_cast<const char*>(current.data()),
             static_cast<std::streamsize>(current.size()));
  fprintf(stderr, "the input is in the file crash-input\n");
}

void Run(const Bytes& input) {
  void (*const parts[])(Input*) = {FuzzSizes,  FuzzCodec,   FuzzCodec,
                                   FuzzCodec,  FuzzCompact, FuzzRows,
                                   FuzzFactors};
  current = input;
  Input bytes(current.data(), current.size());
  bytes.OneOf(parts)(&bytes);
}

}  // namespace
}  // namespace tf_gc

int main(int count, char** arguments) {
  using namespace tf_gc;
  __sanitizer_set_death_callback(SaveCurrent);
  const std::string first = count > 1 ? arguments[1] : "10";
  if (first == "-r") {
    for (int i = 2; i < count; ++i) {
      std::ifstream file(arguments[i], std::ios::binary);
      Run(Bytes(std::istreambuf_iterator<char>(file), {}));
    }
    return 0;
  }
  DecodePastTheCaches();
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::duration<double>(std::stod(first));
  std::mt19937_64 random(1);
  int64_t runs = 0;
  for (; std::chrono::steady_clock::now() < end; ++runs) {
    Bytes input(random() % 200);
    for (uint8_t& byte : input) byte = static_cast<uint8_t>(random());
    Run(input);
  }
  printf("%lld inputs\n", static_cast<long long>(runs));
  return 0;
}
