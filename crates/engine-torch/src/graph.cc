// CUDA graphs, through libtorch's own class. It is the one thing that needs CUDA's headers; without them (see build/cuda.rs)
// every capture fails with a sentence, and the model runs without a graph.

#include <memory>
#include <stdexcept>

#include "boundary.h"

using haloflow::device_at;
using haloflow::guarded_call;

#ifdef HALOFLOW_CUDA_GRAPHS

#include <ATen/cuda/CUDAGraph.h>

struct haloflow_graph {
  c10::DeviceIndex device;
  c10::MempoolId_t pool;
  at::cuda::CUDAGraph graph;
};

extern "C" {

// Starts to capture what the calling thread puts on its current stream, which must not be the default stream. Only this thread
// is held to what a capture allows.
int haloflow_graph_begin(int device, haloflow_graph** out, char** text) {
  return guarded_call(text, [&] {
    if (device < 0) throw std::runtime_error("the CPU has no graphs");
    auto graph = std::unique_ptr<haloflow_graph>(
        new haloflow_graph{device_at(device).index(), at::cuda::graph_pool_handle(), at::cuda::CUDAGraph()});
    graph->graph.capture_begin(graph->pool, cudaStreamCaptureModeThreadLocal);
    *out = graph.release();
  });
}

// Ends the capture and makes the graph ready to be replayed.
int haloflow_graph_end(haloflow_graph* graph, char** text) {
  return guarded_call(text, [&] { graph->graph.capture_end(); });
}

// Ends a capture that failed. The graph is leaked: libtorch may still hold its address in a table of running captures.
void haloflow_graph_abandon(haloflow_graph* graph) {
  const auto tried = [](auto step) {
    try {
      step();
      return true;
    } catch (...) {
      return false;
    }
  };
  // A capture that was broken cannot be ended without an error. libtorch then leaves the allocator in its state of capture.
  if (!tried([&] { graph->graph.capture_end(); })) {
    tried([&] { c10::cuda::CUDACachingAllocator::endAllocateToPool(graph->device, graph->pool); });
    tried([&] { c10::cuda::CUDACachingAllocator::releasePool(graph->device, graph->pool); });
  }
}

// Puts the captured work on the calling thread's current stream.
int haloflow_graph_replay(haloflow_graph* graph, char** text) {
  return guarded_call(text, [&] { graph->graph.replay(); });
}

void haloflow_graph_free(haloflow_graph* graph) { delete graph; }

}  // extern "C"

#else

struct haloflow_graph {};

extern "C" {

int haloflow_graph_begin(int, haloflow_graph**, char** text) {
  return guarded_call(text, [] { throw std::runtime_error("this program was built without CUDA's headers"); });
}

int haloflow_graph_end(haloflow_graph*, char**) { return 0; }

void haloflow_graph_abandon(haloflow_graph*) {}

int haloflow_graph_replay(haloflow_graph*, char**) { return 0; }

void haloflow_graph_free(haloflow_graph*) {}

}  // extern "C"

#endif
