"""What stands in ``__init__`` for the operators that have parameters."""

from __future__ import annotations

from kevin.tasks.operators.base import ONE, Attrs, Constructor, Dim, Making, Shape, Window, along, axis_text, names_of


def _module(name: str, text: str, dims: Shape, weight: Shape, bias: Shape | None) -> Constructor:
    parameters = [(f"{name}_weight", weight)]
    if bias is not None:
        parameters.append((f"{name}_bias", bias))
    return Constructor(name, text, _sizes(dims), tuple(parameters))


def _sizes(dims: Shape) -> tuple[str, ...]:
    """Names that the constructor's text uses; a dimension without a name needs none."""
    return tuple(dict.fromkeys(d.name for d in dims if not d.name.isdigit()))


def _without_bias(attrs: Attrs) -> bool:
    return not attrs.get("bias", 1)


def linear(x: Shape, out: Shape, attrs: Attrs) -> Constructor:
    dims = (x[-1], out[-1])
    plain = _without_bias(attrs)
    text = f"nn.Linear({names_of(dims)}{', bias=False' if plain else ''})"
    return _module("linear", text, dims, (out[-1], x[-1]), None if plain else (out[-1],))


def weight(x: Shape, out: Shape, attrs: Attrs) -> Constructor:
    """A bare matrix as a parameter."""
    shape = (out[-1], x[-1])
    return Constructor(
        "weight", f"nn.Parameter(torch.randn({names_of(shape)}))", _sizes(shape), (("weight", shape),), True
    )


def _options(attrs: Attrs, num_axes: int, *names: str) -> str:
    texts = ((name, axis_text(attrs, name, num_axes)) for name in names)
    return "".join(f", {name}={text}" for name, text in texts if text != str(Window._field_defaults[name]))


def conv(name: str, grouped: bool = False) -> Making:
    """A convolution; ``grouped``: each channel by itself."""

    def make(x: Shape, out: Shape, attrs: Attrs) -> Constructor:
        options = _options(attrs, len(x) - 2, "stride", "padding", "dilation")
        inner = _in_each_group(x[1], attrs)
        if grouped:
            inner, options = Dim("one", 1), f"{options}, groups={x[1].name}"
        return _conv("Conv", name, x, out, attrs, options, (out[1], inner))

    return make


def conv_transpose(x: Shape, out: Shape, attrs: Attrs) -> Constructor:
    axes = len(x) - 2
    options = _options(attrs, axes, "stride", "padding", "output_padding", "dilation")
    weight = (x[1], _in_each_group(out[1], attrs))
    return _conv("ConvTranspose", f"conv_transpose{axes}d", x, out, attrs, options, weight)


def _in_each_group(channels: Dim, attrs: Attrs) -> Dim:
    num_groups = int(attrs.get("groups", 1))
    return Dim("inner_channels", channels.size // num_groups) if num_groups > 1 else channels


def _conv(kind: str, name: str, x: Shape, out: Shape, attrs: Attrs, options: str, weight: Shape) -> Constructor:
    """``weight``: the first two dimensions of its weight."""
    dims, axes = (x[1], out[1]), len(x) - 2
    kernel = tuple(Dim("kernel", along(attrs, axis).kernel) for axis in range(axes))
    if (num_groups := int(attrs.get("groups", 1))) > 1:
        options += f", groups={num_groups}"
    if plain := _without_bias(attrs):
        options += ", bias=False"
    text = f"nn.{kind}{axes}d({names_of(dims)}, {axis_text(attrs, 'kernel', axes)}{options})"
    return _module(name, text, dims, (*weight, *kernel), None if plain else (out[1],))


def layer_norm(x: Shape, out: Shape, attrs: Attrs) -> Constructor:
    dims = x[-int(attrs["num_dims"]) :]
    shape = names_of(dims) if len(dims) == 1 else f"({names_of(dims)})"
    return _module("layer_norm", f"nn.LayerNorm({shape}, eps={attrs['eps']})", dims, dims, dims)


def group_norm(x: Shape, out: Shape, attrs: Attrs) -> Constructor:
    dims = (x[1],)
    text = f"nn.GroupNorm({attrs['groups']}, {x[1].name}, eps={attrs['eps']})"
    return _module("group_norm", text, dims, dims, dims)


def batch_norm(x: Shape, out: Shape, attrs: Attrs) -> Constructor:
    """In train mode: the statistics are those of the batch, whether or not running ones are kept (``track``)."""
    dims = (x[1],)
    track = bool(attrs.get("track", 0))
    text = f"nn.BatchNorm{max(len(x) - 2, 1)}d({x[1].name}, eps={attrs['eps']}"
    text += ")" if track else ", track_running_stats=False)"
    made = _module("batch_norm", text, dims, dims, dims)
    running = tuple((f"batch_norm_running_{what}", dims) for what in ("mean", "var"))
    return made._replace(buffers=running) if track else made


def bias(x: Shape, out: Shape, attrs: Attrs) -> Constructor:
    """A value for each channel."""
    shape = (x[1], *(ONE for _ in x[2:]))
    return Constructor("bias", f"nn.Parameter(torch.randn({names_of(shape)}))", (x[1].name,), (("bias", shape),), True)


def parameter(name: str) -> Making:
    """A parameter of the shape that ``ndim``, ``axis`` and ``view`` say (see `parameter_shape`)."""

    def make(x: Shape, out: Shape, attrs: Attrs) -> Constructor:
        shape = parameter_shape(x, attrs)
        text = f"nn.Parameter(torch.randn({names_of(shape) or '()'}))"
        return Constructor(name, text, _sizes(shape), ((name, shape),), True)

    return make


def parameter_shape(x: Shape, attrs: Attrs) -> Shape:
    """Shape of a parameter that is broadcast against ``x``.

    It has ``ndim`` dimensions (one less than ``x`` by default), all of size one but ``axis`` of ``x`` (the channels by
    default; -1: none). With ``view`` it is stored as a vector.
    """
    axis = int(attrs.get("axis", 1))
    if attrs.get("view"):
        return (x[axis],)
    ndim = int(attrs.get("ndim", len(x) - 1))
    return tuple(d if i == axis else ONE for i, d in enumerate(x) if i >= len(x) - ndim)
