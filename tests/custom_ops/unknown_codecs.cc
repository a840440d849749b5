// Passes values to the library that are no codec, or none that a function
// takes. The argument is the number of a case; each should end the program.

#include <cstdio>
#include <cstdlib>

#include "custom_ops/lib/cpu/codec.h"
#include "custom_ops/lib/cpu/functions.h"
#include "custom_ops/lib/wire/wire.h"

int main(int, char** arguments) {
  const auto unknown = static_cast<tf_gc::Codec>(std::atoi(arguments[2]));
  const tf_gc::FunctionTable<float> table = {};
  float number = 0;
  switch (std::atoi(arguments[1])) {
    case 0:
      return table.Of(unknown).encode != nullptr;
    case 1:
      return static_cast<int>(tf_gc::LayoutOf(unknown, 1).size) == 0;
    case 2:
      return tf_gc::CountUnit(unknown, 1.0f) == 2.0f;
    case 3:
      tf_gc::Encode(unknown, &number, &number, &number, 1, 0.5f, nullptr,
                    nullptr);
      return 0;
    case 4:
      tf_gc::Count(unknown, nullptr, nullptr, 1, 1, 4, nullptr);
      return 0;
    case 5:
      tf_gc::Reencode(unknown, unknown, nullptr, nullptr, 0, &number, &number,
                      &number, 1, nullptr, nullptr);
      return 0;
    case 6:
      return static_cast<int>(tf_gc::CountsCodec(std::atoi(arguments[2]) + 1));
  }
  std::puts("no such case");
  return 0;
}
