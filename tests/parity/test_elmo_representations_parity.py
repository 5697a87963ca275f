"""ELMo against others: the mix as AllenNLP computes it (written out here, since the package does not install beside
torch 2.13), nearest means and the linear probe against scikit-learn 1.9.1, the bidirectional LSTM against torch's own.
"""

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from lrm_utils import evaluate
from lrm_utils.models import elmo_representations as er
from lrm_utils.models.bilm import BiLM, reverse
from lrm_utils.models.cove import Occurrence
from lrm_utils.text import Vocab


def allennlp_mix(tensors, scalars, gamma):
    """What `allennlp.modules.ScalarMix` computes without its layer norm: a softmax over the scalars, then a loop."""
    weights = np.exp(np.array(scalars) - max(scalars))
    weights = weights / weights.sum()
    pieces = [weight * tensor for weight, tensor in zip(weights, tensors, strict=True)]
    return gamma * sum(pieces)


def test_the_mix_equals_allennlps():
    rng = np.random.default_rng(0)
    for layers in (1, 2, 3, 5):
        h, w, gamma = rng.standard_normal((layers, 4, 7, 6)), rng.standard_normal(layers), float(rng.standard_normal())
        mix = er.ScalarMix(layers).double()
        mix.w.data, mix.gamma.data = torch.tensor(w), torch.tensor(gamma, dtype=torch.double)
        np.testing.assert_allclose(
            mix(torch.tensor(h)).detach().numpy(), allennlp_mix(h, w, gamma), rtol=1e-12, atol=1e-12
        )


def test_the_norm_is_torchs_layer_norm_of_each_vector():
    """AllenNLP takes the mean and the variance over all words of a batch; ours is per word, as in Ba et al. (2016)."""
    torch.manual_seed(0)
    h, mix, norm = torch.randn(3, 2, 4, 8) * 5 + 1, er.ScalarMix(3, norm=True), torch.nn.LayerNorm(8)
    mix.w.data = torch.tensor([0.1, -0.4, 0.7])
    expected = sum(s * norm(layer) for s, layer in zip(mix.s, h, strict=True))
    torch.testing.assert_close(mix(h), expected)


def test_the_nearest_mean_equals_scikit_learns_nearest_neighbor_by_cosine():
    """On one word; scikit-learn is given our means, which are compared with plain ones below."""
    rng = np.random.default_rng(0)
    labels = rng.choice(["x", "y", "z"], 200)
    shift = {"x": 0.5, "y": -0.5, "z": 0.0}
    X = rng.standard_normal((200, 6)) + np.array([[shift[label]] * 6 for label in labels])
    taught = [Occurrence(("a",), 0, label) for label in labels]
    senses, queries = er.Senses(X[:150], taught[:150]), X[150:]
    theirs = KNeighborsClassifier(1, metric="cosine").fit(senses.means, [label for _, label in senses.keys])
    assert senses.nearest(queries, taught[150:]) == theirs.predict(queries).tolist()
    by_class = {label: X[:150][labels[:150] == label].mean(0) for label in "xyz"}
    for (_, label), mean in zip(senses.keys, senses.means, strict=True):
        np.testing.assert_allclose(mean, by_class[label])


def test_the_linear_probe_of_pooled_layers_equals_scikit_learns_logistic_regression():
    """The probe adds p |W|^2 to the mean loss. With two classes its columns are u / 2 and -u / 2: p |u|^2 / 2;
    scikit-learn has |u|^2 / 2 beside C times the sum of n losses: C = 1 / (n p)."""
    torch.manual_seed(0)
    vocab = Vocab(("</s>", "<unk>"), np.ones(2, dtype=int))
    embedder = er.Embedder(BiLM([(1, 4), (2, 6)], D=6, H=8).requires_grad_(False), vocab)
    rng = np.random.default_rng(0)
    sentences = [list(rng.choice(["good", "bad", "fine", "awful", "film"], 5)) for _ in range(300)]
    y = np.array([int(s.count("good") + s.count("fine") > s.count("bad") + s.count("awful")) for s in sentences])
    X = embedder.pooled(sentences)[:, 1].numpy()
    ours = evaluate.probe(X[:200], y[:200], X[200:], y[200:], penalty=1e-2)
    scaler = StandardScaler().fit(X[:200])
    theirs = LogisticRegression(C=1 / (200 * 1e-2), tol=1e-8, max_iter=5000)
    theirs.fit(scaler.transform(X[:200]), y[:200])
    assert ours == theirs.score(scaler.transform(X[200:]), y[200:])


def test_the_layers_equal_torchs_lstms():
    """Each direction against torch 2.13's LSTM with a projection, and the residual of the second layer."""
    torch.manual_seed(0)
    bilm = BiLM([(1, 4), (2, 6)], D=5, H=7).double().requires_grad_(False).eval()
    words, vocab = ["a", "cat", "sat"], Vocab(("</s>", "<unk>"), np.ones(2, dtype=int))
    h = er.Embedder(bilm, vocab)([words], torch.double)[0]
    lexicon = er.Lexicon.of([words], vocab)
    batch = lexicon.collate([words])
    x = bilm.characters(lexicon.spellings)[batch["words"]]
    for half, direction in enumerate((bilm.forwards, bilm.backwards)):
        state, lengths = (reverse(x, batch["lengths"]) if half else x), batch["lengths"]
        for j, ours in enumerate(direction.layers):
            torchs = torch.nn.LSTM(5, 7, proj_size=5, batch_first=True).double()
            torchs.load_state_dict(ours.state_dict())
            state = state + torchs(state)[0] if j else torchs(state)[0]
            seen = reverse(state, lengths) if half else state
            torch.testing.assert_close(h[j + 1].chunk(2, -1)[half], seen[0, 1:-1], atol=1e-10, rtol=1e-8)
