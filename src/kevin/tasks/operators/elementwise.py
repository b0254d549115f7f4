"""Element-wise operators: activations, constants, parameters, second inputs, earlier results."""

from __future__ import annotations

from collections.abc import Callable

from kevin.tasks.operators import constructors
from kevin.tasks.operators.base import Attrs, Operator, Shape

_TABLE: tuple[tuple[str, str, dict[str, int | float]], ...] = (
    ("relu", "torch.relu({x})", {}),
    ("leaky_relu", "F.leaky_relu({x}, negative_slope={slope})", {"slope": 0.01}),
    ("sigmoid", "torch.sigmoid({x})", {}),
    ("tanh", "torch.tanh({x})", {}),
    ("gelu", "F.gelu({x})", {}),
    ("silu", "F.silu({x})", {}),
    ("softplus", "F.softplus({x})", {}),
    ("elu", "F.elu({x}, alpha={alpha})", {"alpha": 1.0}),
    ("hardtanh", "F.hardtanh({x}, min_val={min}, max_val={max})", {"min": -1.0, "max": 1.0}),
    ("hardswish", "F.hardswish({x})", {}),
    ("softsign", "F.softsign({x})", {}),
    ("mish", "F.mish({x})", {}),
    ("scale", "{x} * {c}", {"c": 2.0}),
    ("add_scalar", "{x} + {c}", {"c": 0.5}),
    ("clamp", "torch.clamp({x}, min={min}, max={max})", {"min": -0.5, "max": 0.5}),
    ("selu", "torch.selu({x})", {}),
    ("hardsigmoid", "F.hardsigmoid({x})", {}),
    ("new_gelu", "0.5 * {x} * (1.0 + torch.tanh(0.7978845608 * ({x} + 0.044715 * torch.pow({x}, 3.0))))", {}),
    ("abs", "torch.abs({x})", {}),
    ("square", "torch.square({x})", {}),
    ("sub_scalar", "{x} - {c}", {"c": 0.5}),
    ("div_scalar", "{x} / {c}", {"c": 2.0}),
    ("clamp_min", "torch.clamp({x}, min={min})", {"min": 0.0}),
    ("min_scalar", "torch.minimum({x}, torch.tensor({c}, device={x}.device))", {"c": 0.5}),
    ("max_scalar", "torch.maximum({x}, torch.tensor({c}, device={x}.device))", {"c": 0.0}),
    ("dropout", "F.dropout({x}, p={p}, training=False)", {"p": 0.2}),
)

_WITH_PARAMETER = (
    ("add_param", "{x} + {parameter}", "bias"),
    ("sub_param", "{x} - {parameter}", "bias"),
    ("mul_param", "{x} * {parameter}", "scale"),
    ("min_param", "torch.minimum({x}, {parameter})", "limit"),
)

_WITH_RESULT = (
    ("add_residual", "{x} + {residual}"),
    ("mul_residual", "{x} * {residual}"),
    ("residual_sub", "{residual} - {x}"),
)

AGAIN = "again"
"""Optional: the parameter, or the second input, of the last operator that had one is used again."""


def _parameter_text(expression: str) -> Callable[[Shape, Attrs], str]:
    def write(x: Shape, attrs: Attrs) -> str:
        axis = int(attrs.get("axis", 1))
        view = f".view({', '.join('-1' if i == axis else '1' for i in range(len(x)))})" if attrs.get("view") else ""
        return expression.replace("{parameter}", "self.{name}" + view)

    return write


def elementwise() -> list[Operator]:
    return [
        *(Operator(name, "elementwise", text, attrs) for name, text, attrs in _TABLE),
        Operator("bias_add", "elementwise", "{x} + self.bias", ranks=(2, 3, 4, 5), constructor=constructors.bias),
        *(
            Operator(
                name,
                "second",
                f"{{x}} {sign} {{second}}",
                second=lambda x, out: ("y", x),
                optional=(AGAIN,),
            )
            for name, sign in (("add_input", "+"), ("mul_input", "*"))
        ),
        Operator(
            "scale_input",
            "second",
            "{x} * {second}",
            second=lambda x, out: ("s", ()),
            second_sample="3.14",
            second_dtype="float64",
        ),
        *(
            Operator(
                name,
                "elementwise",
                text,
                ranks=(1, 2, 3, 4, 5),
                constructor=constructors.parameter(attribute),
                optional=("ndim", "axis", "view", AGAIN),
                write=_parameter_text(text),
            )
            for name, text, attribute in _WITH_PARAMETER
        ),
        *(Operator(name, "residual", text, {"of": 0}) for name, text in _WITH_RESULT),
    ]
