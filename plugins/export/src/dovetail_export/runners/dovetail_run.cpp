// Runs an exported result with the shared libraries of its engines alone; dovetail_run.h describes it.
//
//     g++ -std=c++17 -O2 dovetail_run.cpp -ldl -pthread -o dovetail_run
//     ./dovetail_run FOLDER INPUTS OUTPUTS [--repeat N] [--threads N] [--parallel auto|on|off]
//
// INPUTS and OUTPUTS are folders with tensors.json, which names the tensors and the file of each.

#include "dovetail_run.h"

#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <iomanip>
#include <iterator>
#include <limits>
#include <locale>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <sstream>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "exports are little-endian");

namespace fs = std::filesystem;

namespace dovetail {
namespace {

// ---- Element types --------------------------------------------------------------------------------------------------

struct Type {
    const char *name;
    int onnx;     // its number in ONNX, which ONNX Runtime takes
    int openvino; // its number in OpenVINO from 2025.0 on; 0 for none
    size_t width; // bytes of an element
};

constexpr Type TYPES[] = {
    {"float32", 1, 4, 4},         {"uint8", 2, 16, 1},           {"int8", 3, 7, 1},
    {"uint16", 4, 17, 2},         {"int16", 5, 8, 2},            {"int32", 6, 9, 4},
    {"int64", 7, 10, 8},          {"string", 8, 0, 0},           {"bool", 9, 1, 1},
    {"float16", 10, 3, 2},        {"float64", 11, 5, 8},         {"uint32", 12, 18, 4},
    {"uint64", 13, 19, 8},        {"complex64", 14, 0, 8},       {"complex128", 15, 0, 16},
    {"bfloat16", 16, 2, 2},       {"float8_e4m3fn", 17, 21, 1},  {"float8_e4m3fnuz", 18, 0, 1},
    {"float8_e5m2", 19, 22, 1},   {"float8_e5m2fnuz", 20, 0, 1},
};

const Type &type_of(const std::string &name) {
    for (const Type &type : TYPES)
        if (name == type.name) return type;
    throw Error("this runner has no type '" + name + "'");
}

template <typename Matches> const Type &type_where(Matches matches, const char *engine) {
    for (const Type &type : TYPES)
        if (matches(type)) return type;
    throw Error(std::string(engine) + " gave a tensor of an unknown type");
}

size_t count_of(const std::vector<int64_t> &shape) {
    size_t count = 1;
    for (int64_t extent : shape) {
        if (extent < 0) throw Error("a shape has the extent " + std::to_string(extent));
        if (__builtin_mul_overflow(count, static_cast<size_t>(extent), &count)) throw Error("a shape is too large");
    }
    return count;
}

size_t bytes_of(const Type &type, const std::vector<int64_t> &shape) {
    size_t bytes;
    if (__builtin_mul_overflow(count_of(shape), type.width, &bytes)) throw Error("a shape is too large");
    return bytes;
}

// Some engines refuse a null pointer, even for no elements.
void *memory_of(const Tensor &tensor) {
    static char nothing[16];
    return tensor.data ? const_cast<void *>(tensor.data.get()) : nothing;
}

std::shared_ptr<void> allocated(size_t bytes) {
    return {::operator new(std::max<size_t>(bytes, 1), std::align_val_t(64)),
            [](void *memory) { ::operator delete(memory, std::align_val_t(64)); }};
}

// ---- JSON -----------------------------------------------------------------------------------------------------------

struct Json {
    enum Kind { null, boolean, number, text, list, object } kind = null;
    std::string value;              // of a text, number or boolean
    std::vector<std::string> names; // of the items of an object
    std::vector<Json> items;
    std::string source; // how an object is written

    const Json *find(const std::string &name) const {
        auto found = std::find(names.begin(), names.end(), name);
        return found == names.end() ? nullptr : &items[static_cast<size_t>(found - names.begin())];
    }
    const Json &at(const std::string &name) const {
        const Json *found = find(name);
        if (!found) throw Error("the field '" + name + "' is missing");
        return *found;
    }
    const std::string &words() const {
        if (kind != text) throw Error("a text is expected in place of '" + value + "'");
        return value;
    }
    int64_t integer() const {
        char *end = nullptr;
        errno = 0;
        long long number_ = std::strtoll(value.c_str(), &end, 10);
        if (kind != number || errno || *end) throw Error("an integer is expected in place of '" + value + "'");
        return number_;
    }
    size_t index() const {
        if (integer() < 0) throw Error("a count is expected in place of '" + value + "'");
        return static_cast<size_t>(integer());
    }
    const std::vector<Json> &rows(size_t least = 0) const {
        if (kind != list || items.size() < least)
            throw Error("a list of " + std::to_string(least) + " or more is expected in place of '" + value + "'");
        return items;
    }
    std::vector<std::string> texts() const {
        std::vector<std::string> all;
        for (const Json &item : rows()) all.push_back(item.words());
        return all;
    }
    std::vector<int64_t> integers() const {
        std::vector<int64_t> all;
        for (const Json &item : rows()) all.push_back(item.integer());
        return all;
    }
};

class Parser {
  public:
    explicit Parser(const std::string &source) : source_(source) {}

    Json document() {
        Json found = any(0);
        space();
        if (at_ != source_.size()) fail("nothing more");
        return found;
    }

  private:
    static constexpr int DEEPEST = 200;
    const std::string &source_;
    size_t at_ = 0;

    [[noreturn]] void fail(const std::string &expected) const {
        throw Error("no JSON: " + expected + " is expected at byte " + std::to_string(at_));
    }
    void space() {
        while (at_ < source_.size() && std::strchr(" \t\r\n", source_[at_])) ++at_;
    }
    bool skip(char wanted) {
        space();
        if (at_ >= source_.size() || source_[at_] != wanted) return false;
        ++at_;
        return true;
    }
    void need(char wanted) {
        if (!skip(wanted)) fail(std::string("'") + wanted + "'");
    }

    Json any(int depth) {
        if (depth > DEEPEST) fail("a shallower value");
        Json found;
        space();
        size_t begin = at_;
        if (skip('{')) {
            found.kind = Json::object;
            for (bool first = true; !skip('}'); first = false) {
                if (!first) need(',');
                need('"');
                found.names.push_back(string());
                need(':');
                found.items.push_back(any(depth + 1));
            }
            found.source = source_.substr(begin, at_ - begin);
        } else if (skip('[')) {
            found.kind = Json::list;
            for (bool first = true; !skip(']'); first = false) {
                if (!first) need(',');
                found.items.push_back(any(depth + 1));
            }
        } else if (skip('"')) {
            found.kind = Json::text;
            found.value = string();
        } else {
            while (at_ < source_.size() && (std::isalnum(static_cast<unsigned char>(source_[at_])) ||
                                            std::strchr("+-.", source_[at_])))
                ++at_;
            found.value = source_.substr(begin, at_ - begin);
            if (found.value == "true" || found.value == "false")
                found.kind = Json::boolean;
            else if (!found.value.empty() && (found.value[0] == '-' || std::isdigit(found.value[0])))
                found.kind = Json::number;
            else if (found.value != "null")
                fail("a value");
        }
        return found;
    }

    // The rest of a text, after its first quote.
    std::string string() {
        std::string found;
        while (at_ < source_.size() && source_[at_] != '"') {
            char one = source_[at_++];
            if (one != '\\') {
                found += one;
                continue;
            }
            static const std::string escapes = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
            char escape = at_ < source_.size() ? source_[at_++] : '\0';
            if (escape == 'u')
                append(found, point());
            else if (size_t index = escapes.find(escape); index != std::string::npos)
                found += meanings[index];
            else
                fail("an escape");
        }
        if (at_ >= source_.size()) fail("the end of a text");
        ++at_;
        return found;
    }
    uint32_t unit() {
        if (at_ + 4 > source_.size()) fail("four digits");
        char *end = nullptr;
        std::string digits = source_.substr(at_, 4);
        uint32_t found = static_cast<uint32_t>(std::strtoul(digits.c_str(), &end, 16));
        if (*end) fail("four digits");
        at_ += 4;
        return found;
    }
    uint32_t point() {
        uint32_t high = unit();
        if (high < 0xD800 || high > 0xDBFF || source_.compare(at_, 2, "\\u") != 0) return high;
        at_ += 2;
        return 0x10000 + ((high - 0xD800) << 10) + (unit() - 0xDC00);
    }
    static void append(std::string &found, uint32_t point) {
        auto byte = [&](uint32_t bits) { found += static_cast<char>(bits); };
        if (point < 0x80) return byte(point);
        if (point < 0x800) {
            byte(0xC0 | point >> 6);
        } else if (point < 0x10000) {
            byte(0xE0 | point >> 12);
            byte(0x80 | (point >> 6 & 0x3F));
        } else {
            byte(0xF0 | point >> 18);
            byte(0x80 | (point >> 12 & 0x3F));
            byte(0x80 | (point >> 6 & 0x3F));
        }
        byte(0x80 | (point & 0x3F));
    }
};

std::string quoted(const std::string &text) {
    std::string found = "\"";
    for (char one : text) {
        if (one == '"' || one == '\\') found += '\\';
        if (static_cast<unsigned char>(one) >= 0x20) {
            found += one;
            continue;
        }
        char escape[8];
        std::snprintf(escape, sizeof escape, "\\u%04x", one);
        found += escape;
    }
    return found + '"';
}

// ---- Files ----------------------------------------------------------------------------------------------------------

std::string content_of(const fs::path &path) {
    std::ifstream file(path, std::ios::binary);
    if (!file || fs::is_directory(path)) throw Error(path.string() + ": " + std::strerror(file ? EISDIR : errno));
    return {std::istreambuf_iterator<char>(file), {}};
}

Json json_of(const fs::path &path) {
    std::string content = content_of(path);
    try {
        return Parser(content).document();
    } catch (const Error &error) {
        throw Error(path.string() + ": " + error.what());
    }
}

class Sha256 {
  public:
    void add(const char *bytes, size_t count) {
        total_ += count;
        while (count) {
            size_t part = std::min(count, sizeof block_ - filled_);
            std::memcpy(block_ + filled_, bytes, part);
            filled_ += part, bytes += part, count -= part;
            if (filled_ == sizeof block_) compress();
        }
    }
    std::string digest() {
        uint64_t bits = total_ * 8;
        add("\x80", 1);
        while (filled_ != 56) add("", 1);
        char length[8];
        for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(bits >> (56 - 8 * i));
        add(length, 8);
        char text[65];
        for (int i = 0; i < 8; ++i) std::snprintf(text + 8 * i, 9, "%08x", state_[i]);
        return text;
    }

  private:
    uint32_t state_[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                          0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    unsigned char block_[64];
    size_t filled_ = 0;
    uint64_t total_ = 0;

    static uint32_t turned(uint32_t word, int bits) { return word >> bits | word << (32 - bits); }

    void compress() {
        static const uint32_t constants[64] = {
            0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
            0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
            0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
            0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
            0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
            0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
            0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
            0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
        uint32_t words[64], s[8];
        for (int i = 0; i < 16; ++i)
            words[i] = static_cast<uint32_t>(block_[4 * i]) << 24 | static_cast<uint32_t>(block_[4 * i + 1]) << 16 |
                       static_cast<uint32_t>(block_[4 * i + 2]) << 8 | block_[4 * i + 3];
        for (int i = 16; i < 64; ++i) {
            uint32_t a = words[i - 15], b = words[i - 2];
            words[i] = words[i - 16] + (turned(a, 7) ^ turned(a, 18) ^ a >> 3) + words[i - 7] +
                       (turned(b, 17) ^ turned(b, 19) ^ b >> 10);
        }
        std::copy(state_, state_ + 8, s);
        for (int i = 0; i < 64; ++i) {
            uint32_t first = s[7] + (turned(s[4], 6) ^ turned(s[4], 11) ^ turned(s[4], 25)) +
                             ((s[4] & s[5]) ^ (~s[4] & s[6])) + constants[i] + words[i];
            uint32_t second = (turned(s[0], 2) ^ turned(s[0], 13) ^ turned(s[0], 22)) +
                              ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
            std::copy_backward(s, s + 7, s + 8);
            s[4] += first;
            s[0] = first + second;
        }
        for (int i = 0; i < 8; ++i) state_[i] += s[i];
        filled_ = 0;
    }
};

// Return the path of a file of an export, after its size and digest were compared.
fs::path checked(const fs::path &folder, const Json &file, bool verify) {
    fs::path path = folder / file.at("path").words();
    if (!fs::is_regular_file(path)) throw Error(path.string() + " is missing");
    uintmax_t size = fs::file_size(path);
    if (size != static_cast<uintmax_t>(file.at("bytes").integer()))
        throw Error(path.string() + " has " + std::to_string(size) + " bytes in place of " + file.at("bytes").value);
    if (!verify) return path;
    std::ifstream content(path, std::ios::binary);
    std::vector<char> chunk(1 << 20);
    Sha256 sum;
    while (content.read(chunk.data(), static_cast<std::streamsize>(chunk.size())) || content.gcount())
        sum.add(chunk.data(), static_cast<size_t>(content.gcount()));
    if (sum.digest() != file.at("sha256").words()) throw Error(path.string() + " was changed: its digest differs");
    return path;
}

// ---- Checks ---------------------------------------------------------------------------------------------------------

std::string joined(const std::vector<std::string> &texts, const std::string &between) {
    std::string found;
    for (const std::string &text : texts) found += (found.empty() ? "" : between) + text;
    return found;
}

void check_processor(size_t number, const Json &needs) {
    std::ifstream information("/proc/cpuinfo");
    std::string line;
    while (std::getline(information, line) && line.rfind("flags", 0) != 0) {}
    if (!information) return;
    std::istringstream words(line);
    std::set<std::string> flags{std::istream_iterator<std::string>(words), {}};
    for (const Json &group : needs.rows()) {
        std::vector<std::string> names = group.texts();
        if (std::none_of(names.begin(), names.end(), [&](const std::string &name) { return flags.count(name); }))
            throw Error("step " + std::to_string(number) + " is for a CPU with " + joined(names, " or ") +
                        ": export the result on this one");
    }
}

void check_shape(const Json &declared, const std::vector<int64_t> &shape) {
    const Json &wanted = declared.at("shape");
    if (wanted.kind == Json::null) return;
    bool fits = wanted.rows().size() == shape.size();
    for (size_t axis = 0; fits && axis < shape.size(); ++axis)
        fits = wanted.items[axis].kind == Json::null || wanted.items[axis].integer() == shape[axis];
    if (fits) return;
    std::vector<std::string> given, expected;
    for (int64_t extent : shape) given.push_back(std::to_string(extent));
    for (const Json &extent : wanted.items) expected.push_back(extent.value);
    throw Error("'" + declared.at("name").words() + "' has the shape [" + joined(given, ", ") + "] in place of [" +
                joined(expected, ", ") + "]");
}

template <typename Element> void check_range(const Json &declared, const Tensor &tensor) {
    if (!tensor.size()) return;
    const std::vector<Json> &range = declared.at("range").rows(2);
    const Element *elements = tensor.as<Element>();
    auto [least, largest] = std::minmax_element(elements, elements + tensor.size());
    // A long double holds every integer of 64 bits.
    long double low = std::strtold(range[0].value.c_str(), nullptr);
    long double high = std::strtold(range[1].value.c_str(), nullptr);
    if (*least >= low && *largest <= high) return;
    std::ostringstream text;
    text << "input '" << declared.at("name").words() << "' holds " << +*least << " to " << +*largest << ", and takes "
         << range[0].value << " to " << range[1].value;
    throw Error(text.str());
}

void check_range(const Json &declared, const Tensor &tensor) {
    static const std::map<std::string, void (*)(const Json &, const Tensor &)> checks = {
        {"int8", check_range<int8_t>},   {"uint8", check_range<uint8_t>},   {"int16", check_range<int16_t>},
        {"uint16", check_range<uint16_t>}, {"int32", check_range<int32_t>}, {"uint32", check_range<uint32_t>},
        {"int64", check_range<int64_t>}, {"uint64", check_range<uint64_t>}, {"float32", check_range<float>},
        {"float64", check_range<double>}};
    if (auto found = checks.find(tensor.type); found != checks.end()) found->second(declared, tensor);
}

void check_elements(const std::string &name, const Tensor &tensor) {
    size_t found = tensor.type == "string" ? tensor.texts.size() : tensor.bytes;
    size_t wanted = tensor.type == "string" ? tensor.size() : bytes_of(type_of(tensor.type), tensor.shape);
    if (found != wanted)
        throw Error("'" + name + "' has " + std::to_string(found) + " bytes or texts in place of " +
                    std::to_string(wanted));
}

void check_input(const Json &declared, const Tensor &tensor) {
    std::string name = declared.at("name").words(), type = declared.at("type").words();
    if (tensor.type != type)
        throw Error("input '" + name + "' is " + type + ", the tensor given is " + tensor.type);
    check_shape(declared, tensor.shape);
    check_elements(name, tensor);
    if (declared.find("range")) check_range(declared, tensor);
}

// Read a tensor as it is declared: the bytes of its elements, or a JSON list of texts.
Tensor tensor_of(const Json &declared, const fs::path &path) {
    Tensor tensor = Tensor::strings(declared.at("shape").integers(), {});
    tensor.type = declared.at("type").words();
    if (tensor.type == "string") {
        tensor.texts = json_of(path).texts();
    } else {
        auto content = std::make_shared<std::string>(content_of(path));
        tensor.data = std::shared_ptr<const void>(content, content->data());
        tensor.bytes = content->size();
    }
    check_elements(declared.at("name").words(), tensor);
    return tensor;
}

// ---- Shared libraries -----------------------------------------------------------------------------------------------

std::string variable(const std::string &name) {
    const char *found = std::getenv(name.c_str());
    return found ? found : "";
}

// Load the library that is named, or else the first of the usual ones. It is never unloaded: its threads may live on.
void *library(const std::string &named, const std::string &environment, std::initializer_list<const char *> usual) {
    std::string path = named.empty() ? variable(environment) : named, problem;
    std::vector<std::string> paths(usual.begin(), usual.end());
    if (!path.empty()) paths = {path};
    for (const std::string &one : paths) {
        if (void *found = dlopen(one.c_str(), RTLD_NOW | RTLD_LOCAL)) return found;
        problem = dlerror();
    }
    throw Error(problem + (path.empty() ? ": name the library by " + environment : ""));
}

template <typename Function> void bind(Function &function, void *library, const char *name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (!function) throw Error(std::string("the library has no function ") + name);
}

// ---- Sessions -------------------------------------------------------------------------------------------------------

// What runs a step: from its inputs to its outputs, in the order of the step.
struct Session {
    virtual ~Session() = default;
    virtual std::vector<Tensor> run(const std::vector<const Tensor *> &inputs) = 0;
};

// A step, and what is known when its session is made.
struct Step {
    const Json &description;
    fs::path folder;
    const std::map<std::string, std::string> &types; // of all values so far, by name
    const Options &options;

    std::vector<std::string> inputs() const { return description.at("inputs").texts(); }
    std::vector<std::string> outputs() const {
        std::vector<std::string> names;
        for (const Json &one : description.at("outputs").rows()) names.push_back(one.at("name").words());
        return names;
    }
    const Json &settings() const { return description.at("settings"); }
    fs::path file() const {
        return folder / description.at("files").rows(1)[0].at("path").words();
    }
};

// ---- ONNX Runtime ---------------------------------------------------------------------------------------------------

struct OrtEnv;
struct OrtStatus;
struct OrtMemoryInfo;
struct OrtSession;
struct OrtSessionOptions;
struct OrtValue;
struct OrtTensorTypeAndShapeInfo;

struct OrtApiBase {
    void *const *(*get_api)(uint32_t version);
    const char *(*version)();
};

// The C functions of ONNX Runtime that are needed. It gives a table of them whose order never changes; versions add to
// its end. Version 16 of the table is the first with all element types and settings that are passed here.
class OnnxRuntime {
  public:
    static constexpr uint32_t API = 16;

    static std::shared_ptr<OnnxRuntime> load(const std::string &path) {
        return std::shared_ptr<OnnxRuntime>(new OnnxRuntime(path));
    }
    ~OnnxRuntime() {
        release_memory_info(memory);
        release_env(env);
    }

    void check(OrtStatus *status) const {
        if (!status) return;
        std::string message = error_message(status);
        release_status(status);
        throw Error(message);
    }

    OrtEnv *env = nullptr;
    OrtMemoryInfo *memory = nullptr;
    OrtStatus *(*create_session)(const OrtEnv *, const char *, const OrtSessionOptions *, OrtSession **);
    OrtStatus *(*run)(OrtSession *, const void *, const char *const *, const OrtValue *const *, size_t,
                      const char *const *, size_t, OrtValue **);
    OrtStatus *(*create_session_options)(OrtSessionOptions **);
    OrtStatus *(*set_threads)(OrtSessionOptions *, int);
    OrtStatus *(*create_tensor)(void *allocator, const int64_t *, size_t, int, OrtValue **);
    OrtStatus *(*create_tensor_with_data)(const OrtMemoryInfo *, void *, size_t, const int64_t *, size_t, int,
                                          OrtValue **);
    OrtStatus *(*tensor_data)(OrtValue *, void **);
    OrtStatus *(*fill_strings)(OrtValue *, const char *const *, size_t);
    OrtStatus *(*strings_length)(const OrtValue *, size_t *);
    OrtStatus *(*strings_content)(const OrtValue *, void *, size_t, size_t *, size_t);
    OrtStatus *(*element_type)(const OrtTensorTypeAndShapeInfo *, int *);
    OrtStatus *(*rank)(const OrtTensorTypeAndShapeInfo *, size_t *);
    OrtStatus *(*extents)(const OrtTensorTypeAndShapeInfo *, int64_t *, size_t);
    OrtStatus *(*type_and_shape)(const OrtValue *, OrtTensorTypeAndShapeInfo **);
    OrtStatus *(*default_allocator)(void **);
    void (*release_session)(OrtSession *);
    void (*release_value)(OrtValue *);
    void (*release_type_and_shape)(OrtTensorTypeAndShapeInfo *);
    void (*release_session_options)(OrtSessionOptions *);
    OrtStatus *(*add_config_entry)(OrtSessionOptions *, const char *, const char *);

  private:
    const char *(*error_message)(const OrtStatus *);
    OrtStatus *(*create_env)(int, const char *, OrtEnv **);
    OrtStatus *(*create_cpu_memory_info)(int, int, OrtMemoryInfo **);
    void (*release_env)(OrtEnv *);
    void (*release_status)(OrtStatus *);
    void (*release_memory_info)(OrtMemoryInfo *);

    explicit OnnxRuntime(const std::string &path) {
        const OrtApiBase *(*base)();
        bind(base, library(path, "DOVETAIL_ONNXRUNTIME", {"libonnxruntime.so.1", "libonnxruntime.so"}),
             "OrtGetApiBase");
        void *const *table = base()->get_api(API);
        if (!table)
            throw Error(std::string("ONNX Runtime ") + base()->version() + " is too old: 1." + std::to_string(API) +
                        " or a later one is needed");
        auto entry = [&](auto &function, size_t index) {
            function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(table[index]);
        };
        entry(error_message, 2);
        entry(create_env, 3);
        entry(create_session, 7);
        entry(run, 9);
        entry(create_session_options, 10);
        entry(set_threads, 24);
        entry(create_tensor, 48);
        entry(create_tensor_with_data, 49);
        entry(tensor_data, 51);
        entry(fill_strings, 52);
        entry(strings_length, 53);
        entry(strings_content, 54);
        entry(element_type, 60);
        entry(rank, 61);
        entry(extents, 62);
        entry(type_and_shape, 65);
        entry(create_cpu_memory_info, 69);
        entry(default_allocator, 78);
        entry(release_env, 92);
        entry(release_status, 93);
        entry(release_memory_info, 94);
        entry(release_session, 95);
        entry(release_value, 96);
        entry(release_type_and_shape, 99);
        entry(release_session_options, 100);
        entry(add_config_entry, 130);
        check(create_env(4, "dovetail", &env)); // 4: it writes nothing itself; failures are thrown
        check(create_cpu_memory_info(0, 0, &memory)); // of the device's own allocator, the default memory
    }
};

class OnnxRuntimeSession : public Session {
  public:
    OnnxRuntimeSession(std::shared_ptr<OnnxRuntime> ort, const Step &step)
        : ort_(std::move(ort)), inputs_(step.inputs()), outputs_(step.outputs()) {
        for (const std::string &provider : step.settings().at("providers").texts())
            if (provider != "CPUExecutionProvider")
                throw Error("it is for " + provider + ", and this runner starts CPUExecutionProvider alone");
        OrtSessionOptions *made = nullptr;
        ort_->check(ort_->create_session_options(&made));
        std::unique_ptr<OrtSessionOptions, void (*)(OrtSessionOptions *)> options(made, ort_->release_session_options);
        ort_->check(ort_->set_threads(made, step.options.threads));
        const Json &entries = step.settings().at("config_entries");
        for (size_t i = 0; i < entries.items.size(); ++i)
            ort_->check(ort_->add_config_entry(made, entries.names[i].c_str(), entries.items[i].words().c_str()));
        std::string disabled = joined(step.settings().at("disabled_optimizers").texts(), ";");
        if (!disabled.empty())
            ort_->check(ort_->add_config_entry(made, "optimization.disable_specified_optimizers", disabled.c_str()));
        OrtSession *session = nullptr;
        ort_->check(ort_->create_session(ort_->env, step.file().c_str(), made, &session));
        session_ = {session, [ort = ort_](OrtSession *old) { ort->release_session(old); }};
    }

    std::vector<Tensor> run(const std::vector<const Tensor *> &inputs) override {
        std::vector<Value> values;
        std::vector<const OrtValue *> given;
        for (const Tensor *tensor : inputs) {
            values.push_back(value_of(*tensor));
            given.push_back(values.back().get());
        }
        std::vector<OrtValue *> made(outputs_.size(), nullptr);
        std::vector<const char *> names = pointers(inputs_), wanted = pointers(outputs_);
        OrtStatus *status = ort_->run(session_.get(), nullptr, names.data(), given.data(), given.size(), wanted.data(),
                                      wanted.size(), made.data());
        std::vector<Value> results;
        for (OrtValue *one : made) results.push_back(owned(one));
        ort_->check(status);
        std::vector<Tensor> tensors;
        for (const Value &one : results) tensors.push_back(tensor_of(one));
        return tensors;
    }

  private:
    using Value = std::shared_ptr<OrtValue>;
    std::shared_ptr<OnnxRuntime> ort_;
    std::shared_ptr<OrtSession> session_;
    std::vector<std::string> inputs_, outputs_;

    // Values keep their session: its allocator has their memory.
    Value owned(OrtValue *value) const {
        return {value, [ort = ort_, session = session_](OrtValue *old) { if (old) ort->release_value(old); }};
    }
    static std::vector<const char *> pointers(const std::vector<std::string> &texts) {
        std::vector<const char *> found;
        for (const std::string &text : texts) found.push_back(text.c_str());
        return found;
    }

    Value value_of(const Tensor &tensor) const {
        OrtValue *value = nullptr;
        int type = type_of(tensor.type).onnx;
        if (tensor.type != "string") {
            ort_->check(ort_->create_tensor_with_data(ort_->memory, memory_of(tensor), tensor.bytes,
                                                      tensor.shape.data(), tensor.shape.size(), type, &value));
            return owned(value);
        }
        void *allocator = nullptr;
        ort_->check(ort_->default_allocator(&allocator));
        ort_->check(ort_->create_tensor(allocator, tensor.shape.data(), tensor.shape.size(), type, &value));
        Value found = owned(value);
        ort_->check(ort_->fill_strings(value, pointers(tensor.texts).data(), tensor.texts.size()));
        return found;
    }

    Tensor tensor_of(const Value &value) const {
        OrtTensorTypeAndShapeInfo *found = nullptr;
        ort_->check(ort_->type_and_shape(value.get(), &found));
        std::unique_ptr<OrtTensorTypeAndShapeInfo, void (*)(OrtTensorTypeAndShapeInfo *)> information(
            found, ort_->release_type_and_shape);
        int number = 0;
        size_t rank = 0;
        ort_->check(ort_->element_type(found, &number));
        ort_->check(ort_->rank(found, &rank));
        Tensor tensor;
        tensor.shape.resize(rank);
        ort_->check(ort_->extents(found, tensor.shape.data(), rank));
        const Type &type = type_where([&](const Type &one) { return one.onnx == number; }, "ONNX Runtime");
        tensor.type = type.name;
        if (tensor.type == "string") {
            tensor.texts = texts_of(value.get(), tensor.size());
            return tensor;
        }
        void *data = nullptr;
        ort_->check(ort_->tensor_data(value.get(), &data));
        tensor.data = std::shared_ptr<const void>(value, data);
        tensor.bytes = bytes_of(type, tensor.shape);
        return tensor;
    }

    std::vector<std::string> texts_of(const OrtValue *value, size_t count) const {
        if (!count) return {};
        size_t length = 0;
        ort_->check(ort_->strings_length(value, &length));
        std::string content(length, '\0');
        std::vector<size_t> offsets(count);
        ort_->check(ort_->strings_content(value, content.data(), length, offsets.data(), count));
        offsets.push_back(length);
        std::vector<std::string> texts;
        for (size_t i = 0; i < count; ++i) texts.push_back(content.substr(offsets[i], offsets[i + 1] - offsets[i]));
        return texts;
    }
};

// ---- OpenVINO -------------------------------------------------------------------------------------------------------

struct ov_core;
struct ov_compiled_model;
struct ov_infer_request;
struct ov_tensor;

struct ov_shape {
    int64_t rank;
    int64_t *extents;
};

struct ov_version {
    const char *number;
    const char *description;
};

// The C functions of OpenVINO that are needed, by their names.
class OpenVino {
  public:
    static constexpr int INVALID_ARGUMENT = -14;

    static std::shared_ptr<OpenVino> load(const std::string &path) {
        return std::shared_ptr<OpenVino>(new OpenVino(path));
    }
    ~OpenVino() { core_free(core); }

    void check(int status) const {
        if (!status) return;
        const char *words = last_error(); // Functions that refuse their arguments leave none.
        std::string message = words ? words : "";
        if (words) text_free(words);
        if (message.empty()) message = "OpenVINO failed with status " + std::to_string(status);
        throw Error(message.substr(0, message.find_last_not_of(" \n") + 1));
    }

    ov_core *core = nullptr;
    int (*compile)(const ov_core *, const char *path, const char *device, size_t, ov_compiled_model **, ...);
    void (*compiled_free)(ov_compiled_model *);
    int (*create_request)(const ov_compiled_model *, ov_infer_request **);
    void (*request_free)(ov_infer_request *);
    int (*set_input)(ov_infer_request *, size_t, const ov_tensor *);
    int (*get_output)(const ov_infer_request *, size_t, ov_tensor **);
    int (*infer)(ov_infer_request *);
    int (*create_tensor)(int, ov_shape, ov_tensor **);
    int (*create_tensor_with_data)(int, ov_shape, void *, ov_tensor **);
    void (*tensor_free)(ov_tensor *);
    int (*tensor_shape)(const ov_tensor *, ov_shape *);
    int (*shape_free)(ov_shape *);
    int (*tensor_type)(const ov_tensor *, int *);
    int (*tensor_data)(const ov_tensor *, void **);

  private:
    const char *(*last_error)();
    void (*text_free)(const char *);
    int (*core_create)(ov_core **);
    void (*core_free)(ov_core *);
    int (*get_version)(ov_version *);
    void (*version_free)(ov_version *);

    explicit OpenVino(const std::string &path) {
        void *found = library(path, "DOVETAIL_OPENVINO", {"libopenvino_c.so"});
        bind(compile, found, "ov_core_compile_model_from_file");
        bind(compiled_free, found, "ov_compiled_model_free");
        bind(create_request, found, "ov_compiled_model_create_infer_request");
        bind(request_free, found, "ov_infer_request_free");
        bind(set_input, found, "ov_infer_request_set_input_tensor_by_index");
        bind(get_output, found, "ov_infer_request_get_output_tensor_by_index");
        bind(infer, found, "ov_infer_request_infer");
        bind(create_tensor, found, "ov_tensor_create");
        bind(create_tensor_with_data, found, "ov_tensor_create_from_host_ptr");
        bind(tensor_free, found, "ov_tensor_free");
        bind(tensor_shape, found, "ov_tensor_get_shape");
        bind(shape_free, found, "ov_shape_free");
        bind(tensor_type, found, "ov_tensor_get_element_type");
        bind(tensor_data, found, "ov_tensor_data");
        bind(last_error, found, "ov_get_last_err_msg");
        bind(text_free, found, "ov_free");
        bind(core_create, found, "ov_core_create");
        bind(core_free, found, "ov_core_free");
        bind(get_version, found, "ov_get_openvino_version");
        bind(version_free, found, "ov_version_free");
        ov_version version{};
        check(get_version(&version));
        std::string number = version.number;
        version_free(&version);
        if (std::atoi(number.c_str()) < 2025) // Earlier ones number the element types otherwise.
            throw Error("OpenVINO " + number + " is too old: 2025.0 or a later one is needed");
        check(core_create(&core));
    }
};

class OpenVinoSession : public Session {
  public:
    OpenVinoSession(std::shared_ptr<OpenVino> library, const Step &step)
        : ov_(std::move(library)), refuses_empty_(step.settings().at("refuses_empty_inputs").value == "true") {
        std::vector<std::string> inputs = step.inputs(), outputs = step.settings().at("outputs").texts();
        for (const std::string &name : step.settings().at("inputs").texts()) inputs_.push_back(index_of(name, inputs));
        for (const std::string &name : step.outputs()) outputs_.push_back(index_of(name, outputs));
        for (const Json &pair : step.settings().at("passed").rows()) {
            size_t output = pair.rows(2)[0].index(), input = pair.rows(2)[1].index();
            if (input >= inputs_.size()) throw Error("it has no input " + std::to_string(input));
            passed_[output] = input;
        }
        std::vector<std::string> texts = configuration(step);
        std::vector<const char *> words(2 * MOST, nullptr);
        if (texts.size() > words.size()) throw Error("it has more than 16 properties");
        for (size_t i = 0; i < texts.size(); ++i) words[i] = texts[i].c_str();
        ov_compiled_model *compiled = nullptr;
        // The function takes as many texts as it is told, and ignores the rest.
        ov_->check(ov_->compile(ov_->core, step.file().c_str(), step.settings().at("device").words().c_str(),
                                texts.size(), &compiled, words[0], words[1], words[2], words[3], words[4], words[5],
                                words[6], words[7], words[8], words[9], words[10], words[11], words[12], words[13],
                                words[14], words[15], words[16], words[17], words[18], words[19], words[20],
                                words[21], words[22], words[23], words[24], words[25], words[26], words[27],
                                words[28], words[29], words[30], words[31]));
        compiled_ = {compiled, ov_->compiled_free};
    }

    std::vector<Tensor> run(const std::vector<const Tensor *> &inputs) override {
        std::vector<Tensor> given;
        std::vector<Handle> handles;
        for (size_t index : inputs_) {
            given.push_back(limited(*inputs[index]));
            if (refuses_empty_ && !given.back().size())
                throw Error("an input is empty: attention without keys is computed by Dovetail alone");
            handles.push_back(handle_of(given.back()));
        }
        Request request = taken();
        for (size_t i = 0; i < handles.size(); ++i) ov_->check(ov_->set_input(request.get(), i, handles[i].get()));
        ov_->check(ov_->infer(request.get()));
        std::vector<Tensor> results;
        for (size_t index : outputs_) {
            auto from = passed_.find(index);
            const Tensor *same = from == passed_.end() ? nullptr : &given[from->second];
            results.push_back(same ? Tensor::copy(same->type, same->shape, same->data.get())
                                   : output(request.get(), index));
        }
        std::lock_guard<std::mutex> lock(mutex_);
        idle_.push_back(std::move(request));
        return results;
    }

  private:
    static constexpr size_t MOST = 16; // properties
    using Handle = std::unique_ptr<ov_tensor, void (*)(ov_tensor *)>;
    using Request = std::unique_ptr<ov_infer_request, void (*)(ov_infer_request *)>;
    std::shared_ptr<OpenVino> ov_;
    bool refuses_empty_;
    std::vector<size_t> inputs_;  // of the step, by the index of the port
    std::vector<size_t> outputs_; // the port of each output of the step
    std::map<size_t, size_t> passed_;
    std::unique_ptr<ov_compiled_model, void (*)(ov_compiled_model *)> compiled_{nullptr, nullptr};
    std::vector<Request> idle_;
    std::mutex mutex_;

    static size_t index_of(const std::string &name, const std::vector<std::string> &names) {
        auto found = std::find(names.begin(), names.end(), name);
        if (found == names.end()) throw Error("nothing gives '" + name + "'");
        return static_cast<size_t>(found - names.begin());
    }

    // Keys and values, one after the other.
    static std::vector<std::string> configuration(const Step &step) {
        std::vector<std::string> texts;
        const Json &given = step.settings().at("configuration");
        for (size_t i = 0; i < given.items.size(); ++i) {
            const Json &item = given.items[i];
            texts.push_back(given.names[i]);
            texts.push_back(item.kind != Json::boolean ? item.value : item.value == "true" ? "YES" : "NO");
        }
        if (step.options.threads) {
            texts.push_back("INFERENCE_NUM_THREADS");
            texts.push_back(std::to_string(step.options.threads));
        }
        return texts;
    }

    // OpenVINO cuts integers to 32 bits.
    static Tensor limited(const Tensor &tensor) {
        if (tensor.type != "int64") return tensor;
        constexpr int64_t low = std::numeric_limits<int32_t>::min(), high = std::numeric_limits<int32_t>::max();
        const int64_t *begin = tensor.as<int64_t>(), *end = begin + tensor.size();
        if (std::all_of(begin, end, [](int64_t one) { return low <= one && one <= high; })) return tensor;
        Tensor found = Tensor::copy(tensor.type, tensor.shape, tensor.data.get());
        int64_t *elements = static_cast<int64_t *>(memory_of(found));
        std::transform(begin, end, elements, [=](int64_t one) { return std::clamp(one, low, high); });
        return found;
    }

    Handle handle_of(const Tensor &tensor) const {
        int type = type_of(tensor.type).openvino;
        if (!type) throw Error("OpenVINO has no type " + tensor.type);
        ov_shape shape{static_cast<int64_t>(tensor.shape.size()), const_cast<int64_t *>(tensor.shape.data())};
        ov_tensor *made = nullptr;
        ov_->check(tensor.bytes ? ov_->create_tensor_with_data(type, shape, memory_of(tensor), &made)
                                : ov_->create_tensor(type, shape, &made));
        return {made, ov_->tensor_free};
    }

    Request taken() {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!idle_.empty()) {
            Request request = std::move(idle_.back());
            idle_.pop_back();
            return request;
        }
        ov_infer_request *made = nullptr;
        ov_->check(ov_->create_request(compiled_.get(), &made));
        return {made, ov_->request_free};
    }

    std::vector<int64_t> shape_of(const ov_tensor *tensor) const {
        ov_shape found{};
        int status = ov_->tensor_shape(tensor, &found);
        if (status == OpenVino::INVALID_ARGUMENT) return {}; // It has no shapes without axes.
        ov_->check(status);
        std::vector<int64_t> shape(found.extents, found.extents + found.rank);
        ov_->shape_free(&found);
        return shape;
    }

    Tensor output(const ov_infer_request *request, size_t index) const {
        ov_tensor *found = nullptr;
        ov_->check(ov_->get_output(request, index, &found));
        Handle handle(found, ov_->tensor_free);
        int number = 0;
        ov_->check(ov_->tensor_type(found, &number));
        std::vector<int64_t> shape = shape_of(found);
        void *data = nullptr;
        if (count_of(shape)) ov_->check(ov_->tensor_data(found, &data));
        const Type &type = type_where([&](const Type &one) { return one.openvino == number; }, "OpenVINO");
        return Tensor::copy(type.name, shape, data);
    }
};

// ---- Engines of vendors ---------------------------------------------------------------------------------------------

class Engine {
  public:
    // Find an engine among tables that are given, or by the library that the environment names; null for none.
    static std::shared_ptr<Engine> find(const std::string &name, const Options &options) {
        if (auto given = options.engines.find(name); given != options.engines.end())
            return std::shared_ptr<Engine>(new Engine(name, given->second, options.threads));
        std::string environment = variable_of(name);
        if (variable(environment).empty()) return nullptr;
        decltype(&dovetail_engine_table) table;
        bind(table, library("", environment, {}), "dovetail_engine_table");
        return std::shared_ptr<Engine>(new Engine(name, table(), options.threads));
    }
    static std::string variable_of(const std::string &name) {
        std::string found = "DOVETAIL_ENGINE_";
        for (char one : name)
            found += std::isalnum(static_cast<unsigned char>(one)) ? static_cast<char>(std::toupper(one)) : '_';
        return found;
    }
    ~Engine() { table_->close(engine_); }

    void *load(const Step &step) const {
        std::string types;
        for (const auto &[name, type] : step.types)
            types += (types.empty() ? "" : ", ") + quoted(name) + ": " + quoted(type);
        void *program = nullptr;
        check(table_->load(engine_, step.folder.c_str(), step.description.source.c_str(), ("{" + types + "}").c_str(),
                           &program));
        return program;
    }
    void run(void *program, const std::vector<dovetail_tensor> &inputs, const dovetail_outputs &outputs) const {
        check(table_->run(program, inputs.data(), inputs.size(), &outputs));
    }

  private:
    const dovetail_engine *table_;
    void *engine_ = nullptr;

    Engine(const std::string &name, const dovetail_engine *table, int threads) : table_(table) {
        if (!table || table->version != DOVETAIL_ENGINE_VERSION)
            throw Error("the table of " + name + " is not of version " + std::to_string(DOVETAIL_ENGINE_VERSION));
        check(table_->open(threads, &engine_));
    }
    void check(int status) const {
        if (!status) return;
        const char *message = table_->last_error();
        throw Error(message ? message : "the engine failed with status " + std::to_string(status));
    }
};

class EngineSession : public Session {
  public:
    EngineSession(std::shared_ptr<Engine> engine, const Step &step)
        : engine_(std::move(engine)), inputs_(step.inputs()), outputs_(step.outputs()) {
        for (const std::string &name : outputs_) types_.push_back(step.types.at(name));
        program_ = engine_->load(step);
    }

    std::vector<Tensor> run(const std::vector<const Tensor *> &inputs) override {
        std::vector<dovetail_tensor> given;
        for (size_t i = 0; i < inputs.size(); ++i) {
            const Tensor &one = *inputs[i];
            if (one.type == "string") throw Error("'" + inputs_[i] + "' is texts, which engines are not given");
            given.push_back({inputs_[i].c_str(), one.type.c_str(), one.shape.data(), one.shape.size(),
                             memory_of(one), one.bytes});
        }
        Results results{types_, std::vector<Tensor>(outputs_.size())};
        engine_->run(program_, given, {&results, allocate});
        for (size_t i = 0; i < outputs_.size(); ++i)
            if (results.tensors[i].type.empty()) throw Error("the engine gave no '" + outputs_[i] + "'");
        return std::move(results.tensors);
    }

  private:
    struct Results {
        const std::vector<std::string> &types;
        std::vector<Tensor> tensors;
    };
    std::shared_ptr<Engine> engine_;
    void *program_ = nullptr;
    std::vector<std::string> inputs_, outputs_, types_;

    // Called by the engine, which no exception may pass.
    static void *allocate(void *context, size_t index, const int64_t *shape, size_t rank) {
        Results &results = *static_cast<Results *>(context);
        try {
            Tensor &tensor = results.tensors.at(index);
            Tensor made;
            made.type = results.types.at(index);
            made.shape.assign(shape, shape + rank);
            made.bytes = bytes_of(type_of(made.type), made.shape);
            std::shared_ptr<void> memory = made.type == "string" ? nullptr : allocated(made.bytes);
            made.data = memory;
            tensor = std::move(made);
            return memory.get();
        } catch (const std::exception &) {
            return nullptr;
        }
    }
};

// ---- The order of steps ---------------------------------------------------------------------------------------------

// Which steps each one waits for, and whether those that wait for none of each other run at the same time.
class Schedule {
  public:
    std::vector<size_t> waits_for;             // how many steps each one waits for
    std::vector<std::vector<size_t>> releases; // the steps that wait for each one
    size_t width = 1;                          // the largest number of steps on one level

    Schedule() = default;
    Schedule(const std::vector<Json> &steps, const std::string &way) : waits_for(steps.size()), releases(steps.size()) {
        if (way != "auto" && way != "on" && way != "off")
            throw Error("'" + way + "' is not one of auto, on, off");
        std::map<std::string, size_t> makers;
        std::map<size_t, size_t> counts;
        std::vector<size_t> levels(steps.size());
        for (size_t number = 0; number < steps.size(); ++number) {
            std::set<size_t> before;
            for (const std::string &name : steps[number].at("inputs").texts())
                if (auto found = makers.find(name); found != makers.end()) before.insert(found->second);
            for (size_t one : before) {
                levels[number] = std::max(levels[number], levels[one] + 1);
                releases[one].push_back(number);
            }
            waits_for[number] = before.size();
            width = std::max(width, ++counts[levels[number]]);
            for (const Json &one : steps[number].at("outputs").rows()) makers[one.at("name").words()] = number;
        }
        if (width == 1 || way == "off") settled_ = false;
        if (width > 1 && way == "on") settled_ = true;
    }

    // Call a function with the number of each step. Throws what the first step that fails throws.
    void run(const std::function<void(size_t)> &call) {
        std::unique_lock<std::mutex> lock(*mutex_);
        bool measured = !settled_, together = settled_.value_or(times_[0].size() >= RUNS);
        lock.unlock();
        auto begin = std::chrono::steady_clock::now();
        if (together)
            run_together(call);
        else
            for (size_t number = 0; number < waits_for.size(); ++number) call(number);
        if (!measured) return;
        lock.lock();
        times_[together].push_back(std::chrono::steady_clock::now() - begin);
        if (settled_ || std::min(times_[0].size(), times_[1].size()) < RUNS) return;
        auto least = [](const Times &times) { return *std::min_element(times.begin() + 1, times.end()); };
        settled_ = least(times_[1]) < least(times_[0]);
    }

  private:
    static constexpr size_t RUNS = 3; // of each way before the faster one is known; the first one warms up
    using Times = std::vector<std::chrono::steady_clock::duration>;
    std::optional<bool> settled_; // whether steps run at the same time, once that is known
    Times times_[2];
    std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();

    void run_together(const std::function<void(size_t)> &call) const;
};

// One run of steps by several threads. After a failure, only steps before it start: one of them may fail, too.
class Together {
  public:
    Together(const Schedule &schedule, const std::function<void(size_t)> &call)
        : schedule_(schedule), call_(call), waits_for_(schedule.waits_for) {
        for (size_t number = 0; number < waits_for_.size(); ++number)
            if (!waits_for_[number]) ready_.insert(number);
    }

    void run() {
        std::vector<std::thread> others;
        for (size_t i = 1; i < schedule_.width; ++i) {
            try {
                others.emplace_back([this] { work(); });
            } catch (const std::system_error &) {
                break; // The system has no more threads; fewer do.
            }
        }
        work();
        for (std::thread &other : others) other.join();
        if (!failures_.empty()) std::rethrow_exception(failures_.begin()->second);
    }

  private:
    const Schedule &schedule_;
    const std::function<void(size_t)> &call_;
    std::vector<size_t> waits_for_;
    std::set<size_t> ready_;
    std::map<size_t, std::exception_ptr> failures_;
    size_t running_ = 0;
    std::mutex mutex_;
    std::condition_variable changed_;

    bool may_start() const {
        return !ready_.empty() && (failures_.empty() || *ready_.begin() < failures_.begin()->first);
    }

    void work() {
        std::unique_lock<std::mutex> lock(mutex_);
        while (true) {
            changed_.wait(lock, [this] { return may_start() || !running_; });
            if (!may_start()) return;
            size_t number = *ready_.begin();
            ready_.erase(ready_.begin());
            ++running_;
            lock.unlock();
            std::exception_ptr failure;
            try {
                call_(number);
            } catch (...) {
                failure = std::current_exception();
            }
            lock.lock();
            --running_;
            if (failure)
                failures_[number] = failure;
            else
                for (size_t following : schedule_.releases[number])
                    if (!--waits_for_[following]) ready_.insert(following);
            changed_.notify_all();
        }
    }
};

void Schedule::run_together(const std::function<void(size_t)> &call) const { Together(*this, call).run(); }

} // namespace

// ---- Tensors --------------------------------------------------------------------------------------------------------

Tensor Tensor::copy(const std::string &type, const std::vector<int64_t> &shape, const void *elements) {
    Tensor tensor = view(type, shape, elements);
    std::shared_ptr<void> memory = allocated(tensor.bytes);
    if (tensor.bytes) std::memcpy(memory.get(), elements, tensor.bytes);
    tensor.data = memory;
    return tensor;
}

Tensor Tensor::view(const std::string &type, const std::vector<int64_t> &shape, const void *elements) {
    if (type == "string") throw Error("texts are made by Tensor::strings");
    return {type, shape, {elements, [](const void *) {}}, bytes_of(type_of(type), shape), {}};
}

Tensor Tensor::strings(const std::vector<int64_t> &shape, const std::vector<std::string> &texts) {
    return {"string", shape, nullptr, 0, texts};
}

size_t Tensor::size() const { return count_of(shape); }

Tensors read_tensors(const std::string &folder) {
    fs::path index = fs::path(folder) / "tensors.json";
    Json description = json_of(index);
    const Json *format = description.find("format"), *version = description.find("version");
    if (!format || format->value != "dovetail-tensors" || !version || version->value != "1")
        throw Error(index.string() + " is no list of tensors of version 1");
    Tensors tensors;
    for (const Json &one : description.at("tensors").rows()) {
        tensors[one.at("name").words()] = tensor_of(one, fs::path(folder) / one.at("file").words());
    }
    return tensors;
}

static void write_file(const fs::path &path, const char *content, size_t bytes) {
    std::ofstream file(path, std::ios::binary);
    if (!file.write(content, static_cast<std::streamsize>(bytes)).flush())
        throw Error(path.string() + ": " + std::strerror(errno));
}

void write_times(const std::string &folder, const std::vector<double> &seconds) {
    std::ostringstream text;
    text.imbue(std::locale::classic());
    text << std::setprecision(9) << "{\"format\": \"dovetail-times\", \"version\": 1, \"seconds\": [";
    for (size_t i = 0; i < seconds.size(); ++i) text << (i ? ", " : "") << seconds[i];
    text << "]}\n";
    std::string content = text.str();
    write_file(fs::path(folder) / "times.json", content.data(), content.size());
}

void write_tensors(const std::string &folder, const Tensors &tensors) {
    std::error_code ignored;
    fs::create_directories(folder, ignored);
    auto write = [&](const std::string &name, const char *content, size_t bytes) {
        write_file(fs::path(folder) / name, content, bytes);
    };
    std::vector<std::string> entries;
    for (const auto &[name, tensor] : tensors) {
        std::vector<std::string> extents, texts;
        for (int64_t extent : tensor.shape) extents.push_back(std::to_string(extent));
        for (const std::string &text : tensor.texts) texts.push_back(quoted(text));
        bool strings = tensor.type == "string";
        std::string file = std::to_string(entries.size()) + (strings ? ".json" : ".bin");
        entries.push_back("{\"name\": " + quoted(name) + ", \"type\": \"" + tensor.type + "\", \"shape\": [" +
                          joined(extents, ", ") + "], \"file\": \"" + file + "\"}");
        std::string list = "[" + joined(texts, ", ") + "]";
        if (strings)
            write(file, list.data(), list.size());
        else
            write(file, tensor.as<char>(), tensor.bytes);
    }
    std::string index = "{\"format\": \"dovetail-tensors\", \"version\": 1, \"tensors\": [\n  " +
                        joined(entries, ",\n  ") + "\n]}\n";
    write("tensors.json", index.data(), index.size());
}

// ---- The runner -----------------------------------------------------------------------------------------------------

struct Runner::State {
    fs::path folder;
    Options options;
    Json description;
    Tensors constants;
    std::map<std::string, std::string> types;
    std::vector<std::unique_ptr<Session>> sessions;
    mutable Schedule schedule;
    std::map<std::string, size_t> readers; // how many steps read each value; one more if it is an output of the whole
    std::shared_ptr<OnnxRuntime> onnxruntime;
    std::shared_ptr<OpenVino> openvino;
    std::map<std::string, std::shared_ptr<Engine>> engines;

    State(const std::string &folder_, const Options &options_) : folder(folder_), options(options_) {
        fs::path path = folder / "deploy.json";
        description = json_of(path);
        const Json *format = description.find("format"), *version = description.find("version");
        if (!format || format->value != "dovetail-deploy" || !version || version->value != "1")
            throw Error(path.string() + " is no description of version 1");
        for (const Json &one : description.at("inputs").rows()) types[one.at("name").words()] = one.at("type").words();
        for (const Json &one : description.at("constants").rows()) {
            constants[one.at("name").words()] = tensor_of(one, checked(folder, one.at("file"), options.verify));
        }
        const std::vector<Json> &steps = description.at("steps").rows();
        for (size_t number = 0; number < steps.size(); ++number) add(number, steps[number]);
        schedule = Schedule(steps, options.parallel);
        for (const Json &step : steps)
            for (const std::string &name : step.at("inputs").texts()) ++readers[name];
        for (const Json &one : description.at("outputs").rows()) ++readers[one.at("name").words()];
    }

    void add(size_t number, const Json &step) {
        std::string name = step.at("engine").words();
        bool known = name == "onnxruntime" || name == "openvino";
        if (!known && !engines[name] && !(engines[name] = Engine::find(name, options)))
            throw Error("step " + std::to_string(number) + " is for " + name + ": name its library by " +
                        Engine::variable_of(name));
        for (const Json &file : step.at("files").rows()) checked(folder, file, options.verify);
        check_processor(number, step.at("needs"));
        for (const Json &one : step.at("outputs").rows()) types[one.at("name").words()] = one.at("type").words();
        try {
            sessions.push_back(session_of(name, {step, folder, types, options}));
        } catch (const Error &error) {
            throw Error("step " + std::to_string(number) + " on " + name + ": " + error.what());
        }
    }

    std::unique_ptr<Session> session_of(const std::string &engine, const Step &step) {
        if (engine == "onnxruntime") {
            if (!onnxruntime) onnxruntime = OnnxRuntime::load(options.onnxruntime);
            return std::make_unique<OnnxRuntimeSession>(onnxruntime, step);
        }
        if (engine == "openvino") {
            if (!openvino) openvino = OpenVino::load(options.openvino);
            return std::make_unique<OpenVinoSession>(openvino, step);
        }
        return std::make_unique<EngineSession>(engines.at(engine), step);
    }

    // What a run has computed so far, and how many steps have yet to read each value.
    struct Run {
        Tensors values;
        std::map<std::string, size_t> readers;
        std::mutex mutex;
    };

    void run_step(size_t number, Run &run) const {
        const Json &step = description.at("steps").rows()[number];
        std::vector<std::string> names = step.at("inputs").texts();
        std::vector<Tensor> read; // they share the elements, and keep them while the step reads
        std::vector<const Tensor *> given;
        {
            std::lock_guard<std::mutex> lock(run.mutex);
            for (const std::string &name : names) {
                auto found = run.values.find(name);
                if (found == run.values.end()) throw Error("nothing gives '" + name + "'");
                read.push_back(found->second);
            }
        }
        for (const Tensor &one : read) given.push_back(&one);
        std::vector<Tensor> results = sessions[number]->run(given);
        const std::vector<Json> &declared = step.at("outputs").rows();
        for (size_t i = 0; i < declared.size(); ++i) check_shape(declared[i], results[i].shape);
        std::lock_guard<std::mutex> lock(run.mutex);
        for (size_t i = 0; i < declared.size(); ++i) {
            const std::string &name = declared[i].at("name").words();
            if (run.readers.count(name)) run.values[name] = std::move(results[i]);
        }
        for (const std::string &name : names)
            if (!--run.readers[name]) run.values.erase(name);
    }
};

Runner::Runner(const std::string &folder, const Options &options) : state_(new State(folder, options)) {}
Runner::~Runner() = default;
Runner::Runner(Runner &&) noexcept = default;
Runner &Runner::operator=(Runner &&) noexcept = default;

Tensors Runner::run(const Tensors &inputs) const {
    State::Run run;
    run.values = state_->constants;
    run.readers = state_->readers;
    Tensors &values = run.values;
    const std::vector<Json> &declared = state_->description.at("inputs").rows();
    for (const Json &one : declared) {
        auto found = inputs.find(one.at("name").words());
        if (found == inputs.end()) throw Error("input '" + one.at("name").words() + "' is missing");
        check_input(one, found->second);
        values[found->first] = found->second;
    }
    for (const auto &[name, tensor] : inputs)
        if (!values.count(name)) throw Error("there is no input '" + name + "'");
    state_->schedule.run([&](size_t number) {
        try {
            state_->run_step(number, run);
        } catch (const Error &error) {
            throw Error("step " + std::to_string(number) + ": " + error.what());
        }
    });
    Tensors outputs;
    for (const Json &one : state_->description.at("outputs").rows()) {
        std::string name = one.at("name").words();
        auto found = values.find(name);
        if (found == values.end()) throw Error("nothing gives '" + name + "'");
        const Tensor &tensor = found->second;
        // An input may be a view of memory that its owner frees.
        outputs[name] = inputs.count(name) && tensor.type != "string"
                            ? Tensor::copy(tensor.type, tensor.shape, tensor.data.get())
                            : tensor;
    }
    return outputs;
}

} // namespace dovetail

// ---- The program ----------------------------------------------------------------------------------------------------

#ifndef DOVETAIL_NO_MAIN
int main(int count, char **words) {
    std::vector<std::string> arguments(words + 1, words + count), folders;
    int repeat = 0;
    dovetail::Options options;
    for (size_t i = 0; i < arguments.size(); ++i) {
        bool follows = i + 1 < arguments.size();
        if (arguments[i] == "--repeat" && follows)
            repeat = std::atoi(arguments[++i].c_str());
        else if (arguments[i] == "--threads" && follows)
            options.threads = std::atoi(arguments[++i].c_str());
        else if (arguments[i] == "--parallel" && follows)
            options.parallel = arguments[++i];
        else
            folders.push_back(arguments[i]);
    }
    if (folders.size() != 3) {
        std::fprintf(stderr, "usage: dovetail_run FOLDER INPUTS OUTPUTS [--repeat N] [--threads N] [--parallel auto|on|off]"
                             "\n\n"
                             "FOLDER is an export; INPUTS and OUTPUTS are folders with tensors.json. --repeat prints "
                             "the median time of N more runs, and writes their seconds to OUTPUTS/times.json.\n");
        return 2;
    }
    try {
        dovetail::Runner runner(folders[0], options);
        dovetail::Tensors inputs = dovetail::read_tensors(folders[1]);
        dovetail::write_tensors(folders[2], runner.run(inputs));
        std::vector<double> times; // seconds
        for (int i = 0; i < repeat; ++i) {
            auto begin = std::chrono::steady_clock::now();
            runner.run(inputs);
            std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
            times.push_back(taken.count());
        }
        if (!times.empty()) {
            dovetail::write_times(folders[2], times);
            std::sort(times.begin(), times.end());
            std::printf("%.3f ms, median of %d\n", times[times.size() / 2] * 1000, repeat);
        }
    } catch (const std::exception &error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return 1;
    }
    return 0;
}
#endif
