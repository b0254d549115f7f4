// As Context.h beside it; a request that names device_of gets it (inside/build.py).
#if !defined(KEVIN_OPERATORS) || defined(KEVIN_DEVICE_OF)
#include_next <ATen/DeviceGuard.h>
#endif
