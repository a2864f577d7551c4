// proves: the properties of property/tokenpool_model.h for schedules and configurations that a fuzzer chooses
#include "fuzz/fuzz.h"
static struct fuzz_input in;
static uint64_t model_choose(uint64_t low, uint64_t high)
{
    return fuzz_between(&in, low, high);
}
#define MODEL_CHECK(cond) FUZZ_CHECK(cond)
#include "property/tokenpool_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct model m;
    in.data = data;
    in.left = size;
    model_run(&m, size);
    return 0;
}
