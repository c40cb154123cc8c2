"""Batch normalisation over real positions only: padding does not count, all processes' shares of a batch do.

Shapes: N positions of any number of dimensions, C channels.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor, distributed, nn


class MaskedBatchNorm(nn.Module):
    """Normalise each channel over the real positions of the whole batch, then scale and shift it.

    Momentum, epsilon and the running statistics (unbiased variance) are those of ``nn.BatchNorm1d``, which has no
    mask, refuses a batch of one value, and whose synchronised variant runs on GPUs only. Evaluation uses the
    running statistics, so that a prediction depends on its own sentence alone.

    A variance needs two values. Where a training batch has but one (the only sentence of a batch, in a global
    branch), it is normalised with the running statistics, which it then moves: their mean towards it, their variance
    towards its squared distance from that mean. A batch without any real position moves nothing.

    Running statistics start at 0 and 1, and after n batches ``(1 - momentum) ** n`` of them is still that start. With
    ``debias`` each batch moves them by ``momentum / (1 - (1 - momentum) ** n)`` instead: the same weighted mean of all
    batches without the start, as Adam's moments have it. ``seen`` is that divisor, for n batches so far.

    No step depends on a value that the CPU must read, so that a CUDA graph can capture it.
    """

    running_mean: Tensor
    running_var: Tensor
    seen: Tensor | None

    def __init__(self, channels: int, *, eps: float = 1e-5, momentum: float = 0.1, debias: bool = False) -> None:
        super().__init__()
        self.eps = eps
        self.momentum = momentum
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.register_buffer("seen", torch.zeros(()) if debias else None)

    def forward(self, values_NC: Tensor, real: RealPositions) -> Tensor:
        # In float32 whatever the precision around it: sums over thousands of tokens need the digits.
        with torch.autocast(values_NC.device.type, enabled=False):
            if self.training:
                with torch.no_grad():
                    centred_NC, inverse_C = self._measure(values_NC.float(), real)
                normal_NC: Tensor = _Normalise.apply(  # type: ignore[no-untyped-call]
                    values_NC, self.weight, self.bias, centred_NC, inverse_C, real.share
                )
            else:
                scale_C = self.weight * torch.rsqrt(self.running_var + self.eps)
                normal_NC = torch.addcmul(self.bias, values_NC.float() - self.running_mean, scale_C)
        return normal_NC.to(values_NC.dtype)

    def _measure(self, wide_NC: Tensor, real: RealPositions) -> tuple[Tensor, Tensor]:
        """Values less their mean, and 1 over their deviation.

        In two passes: the mean of the squares less the square of the mean loses all digits where a channel's mean is
        large beside its spread, as it is in some channels of every encoder.
        """
        batch_mean_C = real.average(wide_NC)
        centred_NC = wide_NC - torch.where(real.has_variance, batch_mean_C, self.running_mean)
        batch_variance_C = real.average(centred_NC.square())
        variance_C = torch.where(real.has_variance, batch_variance_C, self.running_var)
        rate = real.is_any * self.momentum
        if self.seen is not None:
            self.seen.lerp_(torch.ones_like(self.seen), rate)
            rate = rate / self.seen.clamp(min=self.momentum)
        self.running_mean.lerp_(batch_mean_C, rate)
        self.running_var.lerp_(batch_variance_C * real.correction, rate)
        return centred_NC, torch.rsqrt(variance_C + self.eps)


class RealPositions:
    """Which positions count, with figures that normalisations of the same batch share: each is computed once.

    A sum is one product with ones and zeros, which on a GPU is one kernel where masking and adding up are two or three.
    """

    def __init__(self, real_N: Tensor) -> None:
        self.real_N = real_N

    @cached_property
    def _ones(self) -> Tensor:
        """1 x N: 1 where a position is real, else 0."""
        return self.real_N.reshape(1, -1).float()

    @cached_property
    def _count(self) -> Tensor:
        return sum_processes(self._ones.sum())

    @cached_property
    def _divisor(self) -> Tensor:
        return self._count.clamp(min=1)

    @cached_property
    def has_variance(self) -> Tensor:
        """Whether there are at least two positions, as a variance needs."""
        return self._count > 1

    @cached_property
    def is_any(self) -> Tensor:
        """1, or 0 where there is no real position."""
        return self._count.clamp(max=1)

    @cached_property
    def correction(self) -> Tensor:
        """The factor from a mean of squares to an unbiased variance; 1 for a single value."""
        return self._count / (self._count - 1).clamp(min=1)

    @cached_property
    def share(self) -> Tensor:
        """N x 1: each position's share in mean and deviation; 0 at padding."""
        return (self._ones * (self.has_variance / self._divisor)).reshape(*self.real_N.shape, 1)

    def average(self, values_NC: Tensor) -> Tensor:
        """The mean over the real positions of all processes, C."""
        return sum_processes((self._ones @ values_NC.flatten(0, -2)).squeeze(0)) / self._divisor


class _Normalise(torch.autograd.Function):
    """``centred * inverse * weight + bias``, and the gradient of the values through mean and deviation too.

    Written out because automatic differentiation of the statistics launches many more small kernels, which on a GPU
    cost more than the arithmetic in them. The gradients of weight and bias are this process's own, to be summed
    with all others'; those of the statistics, which all processes' losses read, are summed here.
    """

    @staticmethod
    def forward(
        ctx: Any,
        values_NC: Tensor,
        weight_C: Tensor,
        bias_C: Tensor,
        centred_NC: Tensor,
        inverse_C: Tensor,
        share_N1: Tensor,
    ) -> Tensor:
        scale_C = inverse_C * weight_C
        ctx.save_for_backward(scale_C, centred_NC, inverse_C, share_N1)
        ctx.precision = values_NC.dtype
        return torch.addcmul(bias_C, centred_NC, scale_C)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        scale_C, centred_NC, inverse_C, share_N1 = ctx.saved_tensors
        gradient_NC = gradients[0]
        with torch.autocast(gradient_NC.device.type, enabled=False):  # which would sum in half precision
            bias_gradient_C = _sum(gradient_NC)
            weight_gradient_C = _sum(gradient_NC * centred_NC) * inverse_C
        shift_C, stretch_C = (sum_processes(one, copy=True) for one in (bias_gradient_C, weight_gradient_C))
        shared_NC = torch.addcmul(shift_C, centred_NC, inverse_C * stretch_C)
        values_gradient_NC = torch.addcmul(gradient_NC, share_N1, shared_NC, value=-1) * scale_C
        return values_gradient_NC.to(ctx.precision), weight_gradient_C, bias_gradient_C, None, None, None


def _sum(values_NC: Tensor) -> Tensor:
    """The sum over positions, as a product: on a GPU it is faster than a reduction over so few rows."""
    rows = values_NC.flatten(0, -2)
    return (rows.new_ones(1, len(rows)) @ rows).squeeze(0)


def sum_processes(values: Tensor, *, copy: bool = False) -> Tensor:
    """The sum over all processes that train together; the tensor itself where there is one."""
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        values = values.clone() if copy else values
        distributed.all_reduce(values)
    return values
