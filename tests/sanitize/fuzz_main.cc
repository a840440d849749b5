// Runs a fuzz target where there is no libFuzzer (GCC): inputs from a fixed
// sequence and changes of them, for a time.
//
//   fuzz SECONDS     the same inputs in each run, as many as there is time for
//   fuzz -r FILE...  these inputs
//
// An input that fails is left in the file crash-input.

#include <sanitizer/common_interface_defs.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

using Bytes = std::vector<uint8_t>;

extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

// The sanitizer then reports a failed check too, and saves the input.
extern "C" const char* __asan_default_options() { return "handle_abort=1"; }

namespace {

Bytes current;

void SaveCurrent() {
  std::ofstream file("crash-input", std::ios::binary);
  file.write(reinterpret_cast<const char*>(current.data()),
             static_cast<std::streamsize>(current.size()));
  fprintf(stderr, "the input is in the file crash-input\n");
}

void Run(const Bytes& input) {
  current = input;
  // At the end of its allocation: reading past it is an error as well.
  LLVMFuzzerTestOneInput(current.data(), current.size());
}

// Bits flipped, cut short, made longer, joined with another, or new.
Bytes Next(const std::vector<Bytes>& pool, std::mt19937_64* random) {
  const auto below = [&](size_t limit) { return (*random)() % limit; };
  Bytes input = pool[below(pool.size())];
  const size_t change = below(5);
  if (change == 0) {
    for (size_t i = 0; i <= below(8) && !input.empty(); ++i) {
      input[below(input.size())] ^= 1 << below(8);
    }
  } else if (change == 1) {
    input.resize(below(input.size() + 1));
  } else if (change == 2) {
    for (size_t i = 0; i <= below(64); ++i) {
      input.push_back(static_cast<uint8_t>((*random)()));
    }
  } else if (change == 3) {
    const Bytes& other = pool[below(pool.size())];
    input.resize(below(input.size() + 1));
    input.insert(input.end(), other.begin() + below(other.size() + 1),
                 other.end());
  } else {
    input.resize(below(200));
    for (uint8_t& byte : input) byte = static_cast<uint8_t>((*random)());
  }
  return input;
}

}  // namespace

int main(int count, char** arguments) {
  __sanitizer_set_death_callback(SaveCurrent);
  const std::string first = count > 1 ? arguments[1] : "10";
  if (first == "-r") {
    for (int i = 2; i < count; ++i) {
      std::ifstream file(arguments[i], std::ios::binary);
      Run(Bytes(std::istreambuf_iterator<char>(file), {}));
    }
    return 0;
  }
  LLVMFuzzerInitialize(&count, &arguments);
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::duration<double>(std::stod(first));
  std::mt19937_64 random(1);
  std::vector<Bytes> pool(256);
  int64_t runs = 0;
  while (std::chrono::steady_clock::now() < end) {
    Bytes input = Next(pool, &random);
    Run(input);
    pool[random() % pool.size()] = std::move(input);
    ++runs;
  }
  printf("%lld inputs\n", static_cast<long long>(runs));
  return 0;
}
