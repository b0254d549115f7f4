// task: transpose
// expect: right
// kind: streams
// why: captures a graph for the addresses that it is given and launches it

#include <map>
#include <utility>

__global__ void transpose(const float* x, float* out) {
  __shared__ float tile[32][33];
  int64_t row = blockIdx.y * 32 + threadIdx.y, column = blockIdx.x * 32 + threadIdx.x;
  if (row < x_d0 && column < x_d1) tile[threadIdx.y][threadIdx.x] = x[row * x_d1 + column];
  __syncthreads();
  row = blockIdx.y * 32 + threadIdx.x, column = blockIdx.x * 32 + threadIdx.y;
  if (row < x_d0 && column < x_d1) out[column * x_d0 + row] = tile[threadIdx.x][threadIdx.y];
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  static std::map<std::pair<const float*, float*>, cudaGraphExec_t> graphs;
  cudaGraphExec_t& graph = graphs[{x, out}];
  if (graph == nullptr) {
    cudaGraph_t made;
    cudaStream_t own;
    cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
    cudaStreamBeginCapture(own, cudaStreamCaptureModeThreadLocal);
    transpose<<<dim3((x_d1 + 31) / 32, (x_d0 + 31) / 32), dim3(32, 32), 0, own>>>(x, out);
    cudaStreamEndCapture(own, &made);
    cudaGraphInstantiate(&graph, made, 0);
    cudaGraphDestroy(made);
    cudaStreamDestroy(own);
  }
  cudaGraphLaunch(graph, stream);
}
