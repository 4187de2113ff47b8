"""The images, their tokens, and the figures that judge generated ones."""

import gzip

import pytest
import torch

from specdec_lib.continuous import digits, quality
from specdec_lib.continuous.digits import images_of, load_digits, tokens_of, with_noise
from specdec_lib.continuous.quality import energy_test, frechet_distance, interval, ks_distance, train_classifier
from specdec_lib.types import Refusal


@pytest.fixture(scope="module")
def real():
    return load_digits()


def test_all_images_are_there_with_levels_and_classes(real):
    assert real.images.shape == (1797, 8, 8)
    assert (float(real.images.min()), float(real.images.max())) == (0, 16)
    assert sorted(set(real.labels.tolist())) == list(range(10))
    assert [len(real.part(held).labels) for held in (True, False)] == [360, 1437]


def test_tokens_are_patches_and_give_the_images_back(real):
    some = real.images[:20]
    assert torch.equal(images_of(tokens_of(some)), some)
    image = torch.zeros(1, 8, 8)
    image[0, 2, 5] = 16
    token = tokens_of(image)[0]
    assert token[6].tolist() == [-1, 1, -1, -1], "the second row of patches, its third one; pixels row by row"
    assert (token == 1).sum() == 1


def test_the_noise_is_half_a_level(real):
    noise = with_noise(real.images, torch.Generator().manual_seed(0)) - real.images
    assert float(noise.std()) == pytest.approx(0.5, abs=0.01)


def test_a_damaged_file_is_refused(tmp_path):
    with gzip.open(tmp_path / "digits.csv.gz", "wt") as file:
        file.write("0,1\n")
    for path in (tmp_path / "digits.csv.gz", tmp_path / "none.gz"):
        with pytest.raises(Refusal, match="missing or damaged"):
            load_digits(path)
    assert digits.SHIPPED.stat().st_size < 60_000


def test_the_classifier_knows_held_out_digits_and_not_shuffled_ones(real):
    held = real.part(True)
    found = train_classifier(real.part(False), steps=250)
    assert float(found.right(held.images, held.labels).mean()) > 0.93
    assert float(found.right(held.images, held.labels.roll(1)).mean()) < 0.2


def test_the_frechet_distance_of_two_gaussians_is_the_known_one():
    dice = torch.Generator().manual_seed(0)
    one = torch.randn(200_000, 2, generator=dice)
    two = torch.tensor([2.0, 0.5]) * torch.randn(200_000, 2, generator=dice) + torch.tensor([1.0, 0.0])
    assert frechet_distance(one, two) == pytest.approx(1 + 1 + 0.25, abs=0.05)
    assert frechet_distance(one, one) == pytest.approx(0, abs=1e-6)


def test_an_interval_holds_the_mean_and_narrows():
    values = torch.randn(400, 1, generator=torch.Generator().manual_seed(0))
    low, high = interval(values, lambda some: float(some.mean()))
    assert low < float(values.mean()) < high
    assert high - low == pytest.approx(2 * 1.96 / 20, rel=0.2)


def test_the_energy_test_rejects_rarely_where_nothing_differs_and_always_where_much_does():
    dice = torch.Generator().manual_seed(1)
    same = [energy_test(torch.randn(60, 3, generator=dice), torch.randn(60, 3, generator=dice), 99, seed).p_value
            for seed in range(40)]
    assert 0.3 < sum(same) / len(same) < 0.7
    assert sum(p < 0.1 for p in same) <= 10
    assert energy_test(torch.randn(60, 3, generator=dice), 1 + torch.randn(60, 3, generator=dice), 99).p_value == 0.01


def test_the_energy_test_permutes_within_classes_where_both_samples_hold_each_equally_often():
    """Across classes, splits differ in their class counts and the samples cannot, so that nothing is ever found."""
    dice, labels = torch.Generator().manual_seed(1), digits.classes(40)

    def sample(moved=0.0):
        return labels[:, None] + moved + torch.randn(40, 3, generator=dice)

    null = [(sample(), sample()) for _ in range(24)]
    within, across = ([energy_test(*pair, 99, seed, known).p_value for seed, pair in enumerate(null)]
                      for known in ((labels, labels), None))
    assert 0.35 < sum(within) / len(within) < 0.65
    assert min(within) < 0.2
    assert min(across) > 0.5
    assert energy_test(sample(), sample(1.0), 99, labels=(labels, labels)).p_value == 0.01


def test_rows_are_exchanged_with_rows_of_their_class_wherever_these_stand():
    one, two = torch.tensor([[0.0], [9.0]]), torch.tensor([[9.5], [0.5], [0.0]])
    found = energy_test(one, two, 999, labels=(torch.tensor([0, 1]), torch.tensor([1, 0, 0])))
    assert found.p_value == pytest.approx(energy_p_by_hand(one, two), abs=0.05)


def energy_p_by_hand(one, two):
    """Of all three rows of class 0 and both of class 1 that the first sample may hold."""
    rows = [float(value) for value in torch.cat((one, two)).flatten()]

    def distance(first):
        sides = [[rows[at] for at in first], [rows[at] for at in range(5) if at not in first]]
        mean = [[sum(abs(a - b) for a in x for b in y) / len(x) / len(y) for y in sides] for x in sides]
        return 2 * mean[0][1] - mean[0][0] - mean[1][1]

    own = distance((0, 1))
    return sum(distance((a, b)) >= own - 1e-9 for a in (0, 3, 4) for b in (1, 2)) / 6


def test_the_energy_distance_of_two_points_is_twice_their_distance():
    assert energy_test(torch.zeros(2, 1), torch.full((2, 1), 3.0), 1).distance == pytest.approx(6)


def test_the_kolmogorov_smirnov_distance_of_small_samples():
    one, two = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([3.5, 4.5])
    assert ks_distance(one, two) == pytest.approx(0.75)
    assert ks_distance(one, one) == 0
    assert quality.ks_limit(100, 100, 0.05) == pytest.approx(1.358 * (2 / 100) ** 0.5, rel=1e-3)
