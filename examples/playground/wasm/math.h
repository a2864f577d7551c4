#ifndef PLAYGROUND_MATH_H
#define PLAYGROUND_MATH_H
#define sqrt __builtin_sqrt
#endif
