/* Runs an exported result: the folder that `dovetail export` wrote.
 *
 *     g++ -std=c++17 -O2 dovetail_run.cpp -ldl -pthread -o dovetail_run
 *     ./dovetail_run FOLDER INPUTS OUTPUTS
 *
 * Nothing but the C++ standard library and dlopen is needed to compile it. The engines are shared libraries, loaded
 * when a step needs them: DOVETAIL_ONNXRUNTIME and DOVETAIL_OPENVINO name libonnxruntime and libopenvino_c, and
 * DOVETAIL_ENGINE_<NAME> names the library of another engine, with the table of functions that is declared here.
 *
 * In a program, define DOVETAIL_NO_MAIN when dovetail_run.cpp is compiled:
 *
 *     dovetail::Runner runner("shipped");
 *     auto outputs = runner.run({{"x", dovetail::Tensor::copy("float32", {1, 4}, numbers)}});
 *     const float *y = outputs.at("y").as<float>();
 */
#ifndef DOVETAIL_RUN_H
#define DOVETAIL_RUN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Engines of vendors, in C ----------------------------------------------------------------------------------- */

#define DOVETAIL_ENGINE_VERSION 1

/* An input of a step. `type` is a name of deploy.json; the elements are dense, in row-major order. */
typedef struct dovetail_tensor {
    const char *name;
    const char *type;
    const int64_t *shape;
    size_t rank;
    const void *data;
    size_t bytes;
} dovetail_tensor;

/* Where the outputs of a step go. `allocate` gives the memory for one, by its index in the step's outputs; its type is
 * the declared one. Returns NULL where the shape is impossible. */
typedef struct dovetail_outputs {
    void *context;
    void *(*allocate)(void *context, size_t index, const int64_t *shape, size_t rank);
} dovetail_outputs;

/* What an engine can do. Functions that return int return 0, or another number after a failure that `last_error`
 * describes. Texts that are passed are valid during the call alone. */
typedef struct dovetail_engine {
    uint32_t version; /* DOVETAIL_ENGINE_VERSION */
    /* Start the engine; `threads` is 0 for all cores. */
    int (*open)(int threads, void **engine);
    /* Load a step: the JSON text of its entry in deploy.json, and a JSON object with the types of values by name. */
    int (*load)(void *engine, const char *folder, const char *step, const char *types, void **program);
    /* Compute all outputs of a step. Threads may call it at the same time. */
    int (*run)(void *program, const dovetail_tensor *inputs, size_t count, const dovetail_outputs *outputs);
    /* Free the engine with all its programs. */
    void (*close)(void *engine);
    /* The last failure of the calling thread. */
    const char *(*last_error)(void);
} dovetail_engine;

/* The one symbol that the library of an engine has. */
const dovetail_engine *dovetail_engine_table(void);

#ifdef __cplusplus
}

/* ---- The runner, in C++ ----------------------------------------------------------------------------------------- */

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace dovetail {

/* What is wrong with an export, a tensor or an engine. */
class Error : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

/* An array. `type` is a name of deploy.json; types that C++ lacks (float16, bfloat16, ...) are their bits, and bool is
 * one byte each. Copies share the elements. */
struct Tensor {
    std::string type;
    std::vector<int64_t> shape;
    std::shared_ptr<const void> data;
    size_t bytes = 0;
    std::vector<std::string> texts; /* of type string, in place of data; UTF-8 */

    /* A tensor with a copy of the elements, or one that refers to elements that outlive it. */
    static Tensor copy(const std::string &type, const std::vector<int64_t> &shape, const void *elements);
    static Tensor view(const std::string &type, const std::vector<int64_t> &shape, const void *elements);
    static Tensor strings(const std::vector<int64_t> &shape, const std::vector<std::string> &texts);

    template <typename Element> const Element *as() const { return static_cast<const Element *>(data.get()); }
    size_t size() const; /* the number of elements */
};

using Tensors = std::map<std::string, Tensor>;

struct Options {
    int threads = 0;    /* of each engine; 0 for all cores */
    bool verify = true; /* compare the digests of all files first */
    /* whether steps that do not wait for each other run at the same time: "on", "off", or "auto" for the way that the
     * first runs show to be faster */
    std::string parallel = "auto";
    std::string onnxruntime, openvino; /* paths of libraries, before those of the environment */
    std::map<std::string, const dovetail_engine *> engines; /* tables of other engines, before libraries */
};

/* Runs an export; thread-safe where its engines are. */
class Runner {
  public:
    /* Throws Error if the folder is no export, a file is missing or differs, an engine is unknown or cannot be loaded,
     * or the CPU lacks instructions that the export was made for. */
    explicit Runner(const std::string &folder, const Options &options = {});
    ~Runner();
    Runner(Runner &&) noexcept;
    Runner &operator=(Runner &&) noexcept;

    /* Compute all outputs by name. Throws Error if an input is missing, unknown, or of another type, shape or range
     * than is declared, and with the words of an engine that fails. */
    Tensors run(const Tensors &inputs) const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

/* Read and write folders of tensors: tensors.json and a file for each. Throws Error. */
Tensors read_tensors(const std::string &folder);
void write_tensors(const std::string &folder, const Tensors &tensors);

/* Write the seconds of runs into a folder of tensors, as times.json. Throws Error. */
void write_times(const std::string &folder, const std::vector<double> &seconds);

} // namespace dovetail
#endif
#endif
