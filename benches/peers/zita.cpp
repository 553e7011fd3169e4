// Times zita-convolver on one IR: `zita IR BLOCK INPUT PASSES [OUTPUT]` (files of f32) prints ns a sample, by the CPU
// time of all its threads, and the worst block by the clock on the wall (the least over the passes, its helpers
// waited for), ns a sample too. What the first pass made goes to OUTPUT.
//   g++ -O3 -o zita zita.cpp -lzita-convolver -lpthread
#include <zita-convolver.h>
#include <xmmintrin.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sched.h>
#include <time.h>
#include <vector>

static std::vector<float> numbers(const char *path)
{
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    std::vector<float> all(file ? size_t(file.tellg()) / sizeof(float) : 0);
    file.seekg(0);
    file.read(reinterpret_cast<char *>(all.data()), std::streamsize(all.size() * sizeof(float)));
    return all;
}

static double now(clockid_t clock)
{
    timespec t;
    clock_gettime(clock, &t);
    return double(t.tv_sec) * 1e9 + double(t.tv_nsec);
}

int main(int argc, char **argv)
{
    if (argc < 5) return 2;
    std::vector<float> ir = numbers(argv[1]), sound = numbers(argv[3]);
    unsigned block = unsigned(atoi(argv[2]));
    int passes = atoi(argv[4]);
    if (ir.empty() || sound.size() < block || block == 0 || passes < 1) return 2;
    _mm_setcsr(_mm_getcsr() | 0x8040);
    // Its parts are 64 samples or more: with a smaller block it is late by the rest.
    unsigned smallest = std::max(block, 64u);
    Convproc conv;
    conv.set_options(Convproc::OPT_VECTOR_MODE | Convproc::OPT_LATE_CONTIN);
    if (conv.configure(1, 1, unsigned(ir.size()), block, smallest, Convproc::MAXPART, 0.0f)) return 3;
    if (conv.impdata_create(0, 0, 1, ir.data(), 0, int(ir.size()))) return 4;
    if (conv.start_process(0, SCHED_OTHER)) return 5;
    // It returns before its threads run; a level whose thread begins in the middle of the sound is late from there on.
    timespec begun{0, 300000000};
    nanosleep(&begun, nullptr);
    size_t blocks = sound.size() / block;
    std::vector<double> least(blocks, std::numeric_limits<double>::max());
    std::vector<float> made(blocks * block);
    double spent = std::numeric_limits<double>::max();
    for (int pass = 0; pass < passes; pass++) {
        double before = now(CLOCK_PROCESS_CPUTIME_ID);
        for (size_t n = 0; n < blocks; n++) {
            double begin = now(CLOCK_MONOTONIC);
            std::copy_n(&sound[n * block], block, conv.inpdata(0));
            // It waits for its helpers: their work is part of the block's time.
            conv.process(true);
            least[n] = std::min(least[n], now(CLOCK_MONOTONIC) - begin);
            if (pass == 0) std::copy_n(conv.outdata(0), block, &made[n * block]);
        }
        spent = std::min(spent, now(CLOCK_PROCESS_CPUTIME_ID) - before);
    }
    if (argc > 5) {
        std::ofstream out(argv[5], std::ios::binary);
        out.write(reinterpret_cast<const char *>(made.data()), std::streamsize(made.size() * sizeof(float)));
    }
    printf("%f %f\n", spent / double(made.size()), *std::max_element(least.begin(), least.end()) / block);
    conv.stop_process();
    return 0;
}
