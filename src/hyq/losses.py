"""Losses and targets of reinforcement learning: pure functions of tensors, shape-checked.

Names follow rlax: `x_tm1` is known before the transition and `x_t` after it, `discount_t` is
gamma^n times the continuation (0 where the episode terminated). Everything is one number a row
unless a shape says otherwise; B is the number of rows and A of actions.
"""

import torch
from torch import Tensor
from torch.nn import functional


def q_learning(
    q_tm1: Tensor,
    a_tm1: Tensor,
    r_t: Tensor,
    discount_t: Tensor,
    q_t: Tensor,
    q_t_selector: Tensor | None = None,
    value_range: tuple[float, float] | None = None,
) -> Tensor:
    """Return the TD errors of Q-learning: r + discount q_t(a') - q_tm1(a) (Algorithm 3, line 11).

    Args:
        q_tm1: f(s, .) of shape (B, A), which the gradient goes through.
        a_tm1: Actions taken.
        r_t: Rewards.
        discount_t: What the value of the next state counts.
        q_t: f~(s', .) of the target network, shape (B, A).
        q_t_selector: Values (B, A) whose maximum chooses a': the network's own for double
            Q-learning (van Hasselt et al. 2016, equation 4); by default `q_t`, as Mnih et al. 2015.
        value_range: Bounds that targets are clipped to; the paper's class is within [0, V_max].
    """
    _check(q_tm1.shape, q_t.shape, q_t.shape if q_t_selector is None else q_t_selector.shape)
    _check(a_tm1.shape, r_t.shape, discount_t.shape, q_tm1.shape[:1])
    v_t = q_t.amax(-1) if q_t_selector is None else chosen(q_t, q_t_selector.argmax(-1))
    target = r_t + discount_t * v_t
    if value_range is not None:
        target = target.clamp(*value_range)
    return target.detach() - chosen(q_tm1, a_tm1)


def chosen(q_tm1: Tensor, a_tm1: Tensor) -> Tensor:
    """Return Q(s, a): the entries of `q_tm1` (..., A) at the actions `a_tm1` (...)."""
    return q_tm1.gather(-1, a_tm1.unsqueeze(-1)).squeeze(-1)


def td_learning(
    v_tm1: Tensor,
    r_t: Tensor,
    discount_t: Tensor,
    v_t: Tensor,
    value_range: tuple[float, float] | None = None,
) -> Tensor:
    """Return the TD errors r + discount v_t - v_tm1 (Sutton 1988); no gradient through `v_t`."""
    _check(v_tm1.shape, r_t.shape, discount_t.shape, v_t.shape)
    target = r_t + discount_t * v_t.detach()
    return (target if value_range is None else target.clamp(*value_range)) - v_tm1


def ensemble_td_learning(
    q_tm1: Tensor,
    r_t: Tensor,
    discount_t: Tensor,
    v_t: Tensor,
    value_range: tuple[float, float] | None = None,
) -> Tensor:
    """Return `td_learning` of every member's values (members, B) towards the same targets (B,)."""
    _check(r_t.shape, discount_t.shape, v_t.shape, q_tm1.shape[1:])
    reward, discount, value = (row.expand_as(q_tm1) for row in (r_t, discount_t, v_t))
    return td_learning(q_tm1, reward, discount, value, value_range)


def huber_loss(error: Tensor) -> Tensor:
    """Return e^2 / 2 within one of zero and |e| - 1/2 beyond (Huber 1964)."""
    return functional.huber_loss(error, torch.zeros_like(error), reduction="none")


def squared_loss(error: Tensor) -> Tensor:
    """Return e^2, the Bellman error as the paper prints it."""
    return error.square()


ROBUST = {"huber": huber_loss, "squared": squared_loss}
"""Losses of the TD error, by name."""


def conservative_penalty(q_tm1: Tensor, a_tm1: Tensor) -> Tensor:
    """Return CQL(H)'s log sum_a exp Q(s, a) - Q(s, a_data) (Kumar et al. 2020, equation 4).

    It is the negative log-likelihood of the logged action under the softmax policy of Q, so with
    logits in place of Q it is also the loss of behaviour cloning.
    """
    _check(a_tm1.shape, q_tm1.shape[:-1])
    return q_tm1.logsumexp(-1) - chosen(q_tm1, a_tm1)


def large_margin_loss(q_tm1: Tensor, a_tm1: Tensor, margin: float) -> Tensor:
    """Return DQfD's max_a [Q(s, a) + margin 1(a != a_E)] - Q(s, a_E) (Hester et al. 2018)."""
    _check(a_tm1.shape, q_tm1.shape[:-1])
    demonstrated = functional.one_hot(a_tm1, q_tm1.shape[-1])
    return (q_tm1 + margin * (1 - demonstrated)).amax(-1) - chosen(q_tm1, a_tm1)


def expectile_loss(error: Tensor, expectile: float) -> Tensor:
    """Return IQL's |expectile - 1(u < 0)| u^2 / 2, u the error (Kostrikov et al. 2022, eq. 5)."""
    return torch.where(error < 0, 1 - expectile, expectile) * error.square() / 2


def advantage_weights(advantage: Tensor, temperature: float, largest: float) -> Tensor:
    """Return min(exp(temperature A), largest), IQL's weights of actions (equation 7)."""
    # Clipping the exponent is the same as clipping the weight, and cannot overflow.
    limit = torch.tensor(largest, device=advantage.device).log()
    return (temperature * advantage.detach()).minimum(limit).exp()


def clipped_surrogate(ratio_t: Tensor, advantage_t: Tensor, clip: float) -> Tensor:
    """Return PPO's -min(rho A, clip(rho, 1 - c, 1 + c) A) (Schulman et al. 2017, equation 7)."""
    _check(ratio_t.shape, advantage_t.shape)
    clipped = ratio_t.clamp(1 - clip, 1 + clip)
    return -torch.minimum(ratio_t * advantage_t, clipped * advantage_t)


def generalised_advantage(
    r_t: Tensor, discount_t: Tensor, v_tm1: Tensor, v_t: Tensor, lambda_t: Tensor
) -> Tensor:
    """Return advantages A_t = e_t + discount_t lambda_t A_{t+1}, e_t the TD error; time is first.

    Schulman et al. (2016), equation 16. The discount is 0 where the return ends; lambda is 0 also
    where the next row belongs to another episode.
    """
    error = td_learning(v_tm1, r_t, discount_t, v_t)
    advantage = torch.zeros_like(error)
    later = torch.zeros_like(error[0])
    for t in reversed(range(len(error))):
        later = error[t] + discount_t[t] * lambda_t[t] * later
        advantage[t] = later
    return advantage


def _check(*shapes: torch.Size) -> None:
    """Raise unless all shapes are the same: broadcasting would hide a missing axis."""
    if len(set(shapes)) != 1:
        raise ValueError(f"expected equal shapes, got {[tuple(shape) for shape in shapes]}")
