"""Batch normalisation that sees only what is real: no padding, and all processes' share of a batch.

Shapes: N positions of any number of dimensions, C channels.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed, nn


class MaskedBatchNorm(nn.Module):
    """Normalise each channel over the real positions of the whole batch, then scale and shift it.

    Momentum, epsilon and the running statistics (unbiased variance) are those of ``nn.BatchNorm1d``, which has no
    mask, refuses a batch of one value, and whose synchronised kin runs on GPUs only. In evaluation the running
    statistics serve, so that a prediction depends on its own sentence alone.

    A variance needs two values. Where a training batch has but one (the only sentence of a batch, in a global
    branch), it is normalised with the running statistics, which it then moves: their mean towards it, their variance
    towards its squared distance from that mean. A batch without any real position moves nothing.

    All of this is written without a look at a value, so that a CUDA graph can hold it.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, *, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.eps = eps
        self.momentum = momentum
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, values_NC: Tensor, real_N: Tensor) -> Tensor:
        # In float32 whatever the precision around it: sums over thousands of tokens need the digits.
        with torch.autocast(values_NC.device.type, enabled=False):
            if self.training:
                real_N1 = real_N.unsqueeze(-1).float()
                with torch.no_grad():
                    centred_NC, inverse_C, pull_N1 = self._measure(values_NC.float(), real_N1)
                normal_NC: Tensor = _Normalise.apply(  # type: ignore[no-untyped-call]
                    values_NC, self.weight, self.bias, centred_NC, inverse_C, pull_N1
                )
            else:
                scale_C = self.weight * torch.rsqrt(self.running_var + self.eps)
                normal_NC = torch.addcmul(self.bias, values_NC.float() - self.running_mean, scale_C)
        return normal_NC.to(values_NC.dtype)

    def _measure(self, wide_NC: Tensor, real_N1: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Values less their mean, 1 over their deviation, and each position's part in both (0 where it has none).

        In two passes: the mean of the squares less the square of the mean loses all digits where a channel's mean is
        large beside its spread, as it is in some channels of every encoder.
        """
        totals = add_up_processes(torch.cat([_sum(wide_NC * real_N1), _sum(real_N1)]))
        sum_C, count = totals[:-1], totals[-1]
        several, divisor = count > 1, count.clamp(min=1)
        batch_mean_C = sum_C / divisor
        centred_NC = wide_NC - torch.where(several, batch_mean_C, self.running_mean)
        squares_C = add_up_processes(_sum(centred_NC.square() * real_N1))
        variance_C = torch.where(several, squares_C / divisor, self.running_var)
        rate = self.momentum * (count > 0)
        self.running_mean.lerp_(batch_mean_C, rate)
        self.running_var.lerp_(squares_C / (count - 1).clamp(min=1), rate)
        return centred_NC, torch.rsqrt(variance_C + self.eps), real_N1 * (several / divisor)


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
        pull_N1: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(weight_C, centred_NC, inverse_C, pull_N1)
        ctx.precision = values_NC.dtype
        return torch.addcmul(bias_C, centred_NC, inverse_C * weight_C)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        weight_C, centred_NC, inverse_C, pull_N1 = ctx.saved_tensors
        gradient_NC = gradients[0]
        bias_gradient_C = _sum(gradient_NC)
        weight_gradient_C = _sum(gradient_NC * centred_NC) * inverse_C
        shift_C, stretch_C = add_up_processes(torch.stack([bias_gradient_C, weight_gradient_C]))
        shared_NC = torch.addcmul(shift_C, centred_NC, inverse_C * stretch_C)
        values_gradient_NC = torch.addcmul(gradient_NC, pull_N1, shared_NC, value=-1) * (weight_C * inverse_C)
        return values_gradient_NC.to(ctx.precision), weight_gradient_C, bias_gradient_C, None, None, None


def _sum(values_NC: Tensor) -> Tensor:
    return values_NC.flatten(0, -2).sum(0)


def add_up_processes(values: Tensor) -> Tensor:
    """The sum over all processes that train together; the tensor itself where there is one."""
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        distributed.all_reduce(values)
    return values
