// task: sort
// expect: wrong
// kind: input_mutated
// why: sorts the rows of its input, then copies them
// shown: by construction

__global__ void sort_rows(float* x) {
  float* row = x + blockIdx.x * x_d1;
  for (int pass = 0; pass < x_d1; pass++) {
    __syncthreads();
    const int i = 2 * threadIdx.x + pass % 2;
    if (i + 1 < x_d1 && row[i] > row[i + 1]) {
      const float larger = row[i];
      row[i] = row[i + 1];
      row[i + 1] = larger;
    }
  }
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  sort_rows<<<x_d0, 129, 0, stream>>>(const_cast<float*>(x));
  cudaMemcpyAsync(out, x, x_size * sizeof(float), cudaMemcpyDeviceToDevice, stream);
}
