// torch includes thrust's whole library for complex numbers, which a request that names none needs as types alone.
#ifdef KEVIN_COMPLEX
#include_next <thrust/complex.h>
#else
#pragma once
namespace thrust {
template <class T>
struct complex {
  __host__ __device__ complex(const T& re = T(), const T& im = T()) : re_(re), im_(im) {}
  template <class U>
  __host__ __device__ explicit complex(const complex<U>& other) : re_(other.real()), im_(other.imag()) {}
  __host__ __device__ T real() const { return re_; }
  __host__ __device__ T imag() const { return im_; }

 private:
  T re_, im_;
};
// Declared only: what calls them does not link here, and is then built with torch's own headers.
#define KEVIN_DECLARE(name) \
  template <class T>        \
  __host__ __device__ complex<T> name(const complex<T>&);
KEVIN_DECLARE(exp)
KEVIN_DECLARE(log)
KEVIN_DECLARE(log10)
KEVIN_DECLARE(sqrt)
KEVIN_DECLARE(sin)
KEVIN_DECLARE(cos)
KEVIN_DECLARE(tan)
KEVIN_DECLARE(asin)
KEVIN_DECLARE(acos)
KEVIN_DECLARE(atan)
KEVIN_DECLARE(sinh)
KEVIN_DECLARE(cosh)
KEVIN_DECLARE(tanh)
KEVIN_DECLARE(asinh)
KEVIN_DECLARE(acosh)
KEVIN_DECLARE(atanh)
#undef KEVIN_DECLARE
template <class T>
__host__ __device__ T abs(const complex<T>&);
template <class T>
__host__ __device__ T arg(const complex<T>&);
template <class T>
__host__ __device__ T norm(const complex<T>&);
template <class T>
__host__ __device__ complex<T> polar(const T&, const T&);
template <class T, class U>
__host__ __device__ complex<T> pow(const complex<T>&, const U&);
template <class T, class U>
__host__ __device__ complex<T> pow(const U&, const complex<T>&);
template <class T>
__host__ __device__ complex<T> pow(const complex<T>&, const complex<T>&);
template <class T>
__host__ __device__ complex<T> operator*(const complex<T>&, const complex<T>&);
}  // namespace thrust
#endif
