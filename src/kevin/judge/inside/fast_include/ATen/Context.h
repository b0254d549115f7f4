// Every operator's header includes this one and uses nothing of it: left out of those of torch/types.h.
#ifndef KEVIN_OPERATORS
#include_next <ATen/Context.h>
#endif
