"""Orthogonal first weights: they neither swell nor shrink what goes through them."""

import numpy as np
import pytest

from hyq.models.networks import InputScaling, Network, NetworkSpec
from hyq.models.orthogonal import orthogonal_matrix, orthogonal_weights


@pytest.mark.parametrize(("rows", "columns"), [(3, 8), (8, 3), (5, 5)])
def test_the_shorter_side_is_orthonormal(rows: int, columns: int) -> None:
    matrix = orthogonal_matrix(rows, columns, np.random.default_rng(0))
    assert matrix.shape == (rows, columns)
    product = matrix @ matrix.T if rows <= columns else matrix.T @ matrix
    np.testing.assert_allclose(product, np.eye(min(rows, columns)), atol=1e-12)


@pytest.mark.parametrize("stream_hidden", [0, 12])
def test_only_the_last_layers_take_the_last_gain(stream_hidden: int) -> None:
    spec = NetworkSpec(
        ((4, 3, 2),), hidden=(16,), dueling=False, stream_hidden=stream_hidden, normalise=True
    )
    network = Network((2, 9, 9), 5, spec, InputScaling.pixels(), extra_outputs=2)
    weights = orthogonal_weights(network, np.random.default_rng(0), last_gain=0.01)
    assert weights.keys() == dict(network.module().named_parameters()).keys()
    end = "2.weight" if stream_hidden else "weight"
    for name, value in weights.items():
        largest = np.linalg.norm(value.reshape(len(value), -1), 2)  # the largest singular value
        if name.endswith("bias"):
            assert not value.any()
        elif name == "body.4.weight":  # of the normalisation
            np.testing.assert_array_equal(value, 1.0)
        elif name in (f"heads.0.{end}", f"heads.1.{end}"):
            assert largest == pytest.approx(0.01, rel=1e-5)
        else:
            assert largest == pytest.approx(np.sqrt(2), rel=1e-5)
