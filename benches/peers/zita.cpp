// Times zita-convolver on one IR: `zita TAPS BLOCK SAMPLES` prints ns a sample (CPU time of all its
// threads, as they share one CPU: wall time of the whole) and the worst block's ns.
//   g++ -O3 -o zita zita.cpp -lzita-convolver -lpthread
#include <zita-convolver.h>
#include <xmmintrin.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sched.h>
#include <vector>

static std::vector<float> noise(size_t len, unsigned state)
{
    std::vector<float> out(len);
    for (float &x : out) {
        state = state * 1664525u + 1013904223u;
        x = float(state >> 8) / float(1u << 23) - 1.0f;
    }
    return out;
}

int main(int argc, char **argv)
{
    if (argc != 4) return 2;
    unsigned taps = atoi(argv[1]), block = atoi(argv[2]), samples = atoi(argv[3]);
    _mm_setcsr(_mm_getcsr() | 0x8040);
    // Its parts are 64 samples or more: with a smaller block it is late by the rest.
    unsigned smallest = std::max(block, 64u);
    Convproc conv;
    conv.set_options(Convproc::OPT_VECTOR_MODE | Convproc::OPT_LATE_CONTIN);
    if (conv.configure(1, 1, taps, block, smallest, Convproc::MAXPART, 0.0f)) return 3;
    std::vector<float> ir = noise(taps, 2), sound = noise(samples, 1);
    for (float &x : ir) x /= float(taps);
    if (conv.impdata_create(0, 0, 1, ir.data(), 0, taps)) return 4;
    if (conv.start_process(0, SCHED_OTHER)) return 5;
    using clock = std::chrono::steady_clock;
    double worst = 0, total = 0;
    for (int pass = 0; pass < 2; pass++) {
        worst = total = 0;
        for (unsigned at = 0; at + block <= samples; at += block) {
            auto begin = clock::now();
            std::copy_n(&sound[at], block, conv.inpdata(0));
            // It waits for its helpers: their work is part of the block's time.
            conv.process(true);
            double took = std::chrono::duration<double, std::nano>(clock::now() - begin).count();
            worst = std::max(worst, took);
            total += took;
        }
    }
    printf("%f %f\n", total / samples, worst);
    conv.stop_process();
    return 0;
}
