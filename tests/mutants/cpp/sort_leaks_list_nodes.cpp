// task: sort
// expect: wrong
// kind: leak
// why: builds a search tree for each row and frees none: half a megabyte in small pieces with every call
// shown: by construction

struct Node {
  float value;
  Node *left, *right;
};

static void insert(Node*& at, float value) {
  if (at == nullptr)
    at = new Node{value, nullptr, nullptr};
  else
    insert(value < at->value ? at->left : at->right, value);
}

static float* walk(const Node* at, float* out) {
  if (at == nullptr) return out;
  out = walk(at->left, out);
  *out++ = at->value;
  return walk(at->right, out);
}

extern "C" void launch(const float* x, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    Node* root = nullptr;
    for (int64_t i = 0; i < x_d1; i++) insert(root, x[r * x_d1 + i]);
    walk(root, out + r * x_d1);
  }
}
