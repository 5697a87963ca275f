"""CoVe: padding, causality, weights, and steps, for many shapes."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lrm_utils import check
from lrm_utils.models import cove as cv

FEW = settings(max_examples=12, deadline=None)


@st.composite
def batches(draw):
    B, T = draw(st.integers(2, 4)), draw(st.integers(3, 7))
    lengths = [draw(st.integers(1, T)) for _ in range(B - 1)] + [draw(st.integers(1, T - 1))]
    seed = draw(st.integers(0, 1000))
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    return torch.randint(4, 12, (B, T), generator=generator), torch.tensor(lengths)


def make_table():
    return torch.nn.Embedding.from_pretrained(torch.randn(13, 6))


@FEW
@given(batches(), st.integers(1, 2))
def test_padding_changes_nothing_for_the_encoder_the_features_and_the_translator(batch, decoder_layers):
    words, lengths = batch
    table, target = make_table(), words[:, :3]
    model = cv.Translator(table, 12, 8, 5, (2, decoder_layers)).eval()
    check.padding(lambda x, n: model.encoder(table(x), n)[0], words, lengths)
    check.padding(lambda x, n: model.encoder(table(x), n)[1][1].flatten(1), words, lengths)
    check.padding(cv.Features(table, model.encoder), words, lengths)
    check.padding(lambda x, n: model(x, n, target).flatten(1), words, lengths)


@FEW
@given(batches(), st.booleans())
def test_padding_changes_nothing_for_the_classifier_and_its_pools(batch, two):
    words, lengths = batch
    n = 2 if two else 1
    model = cv.Classifier(cv.Features(make_table(), cv.MTLSTM(6, 4)), 3, 6, n).eval()

    def scores(x, m):
        return model(torch.stack([x, x.flip(0)][:n], 1), torch.stack([m, m.flip(0)][:n], 1))

    check.padding(scores, words, lengths)
    pool, table = cv.Pooling(6), make_table()
    check.padding(lambda x, m: pool(table(x), cv.places(m, x.shape[1])), words, lengths)


@FEW
@given(batches(), st.integers(1, 2))
def test_no_target_word_sees_what_comes_after_it(batch, decoder_layers):
    words, lengths = batch
    model = cv.Translator(make_table(), 12, 8, 5, (2, decoder_layers)).eval()
    check.causal(lambda y: model(words, lengths, y), words)


@FEW
@given(batches(), st.integers(1, 2))
def test_step_by_step_is_all_at_once_and_weights_are_distributions(batch, decoder_layers):
    words, lengths = batch
    model = cv.Translator(make_table(), 12, 8, 5, (2, decoder_layers)).eval()
    state, logits = model.start(words, lengths), []
    for t in range(words.shape[1]):
        scores, state = model.step(words[:, t], state)
        logits.append(scores)
    check.close(torch.stack(logits, 1), model(words, lengths, words), 1e-5)
    _, weights = model.read(words, lengths, words)
    real = cv.places(lengths, words.shape[1])
    check.sums_to_one(weights, allowed=real[:, None, None].expand_as(weights))


@FEW
@given(batches())
def test_summaries_weigh_real_words_only(batch):
    words, lengths = batch
    X, Y = torch.randn(*words.shape, 6), torch.randn(len(words), words.shape[1], 6)
    real = cv.places(lengths, words.shape[1])
    C, weights = cv.summarize(X, Y, real)
    check.sums_to_one(weights, allowed=real[:, None].expand_as(weights))
    check.close(C, weights @ Y, 1e-5)


@FEW
@given(batches())
def test_packed_states_are_those_of_each_sentence_alone_and_zero_behind_it(batch):
    words, lengths = batch
    x, encoder = torch.randn(*words.shape, 6), cv.MTLSTM(6, 8)
    states, (h, c) = encoder(x, lengths)
    for i, n in enumerate(lengths.tolist()):
        alone, (h_alone, c_alone) = encoder.rnn(x[i : i + 1, :n])
        check.close(states[i, :n], alone[0], 1e-5)
        assert not states[i, n:].any()
        for ours, torchs in ((h, h_alone), (c, c_alone)):
            check.close(ours[i], torchs[:, 0].reshape(2, -1), 1e-5)


@FEW
@given(batches())
def test_a_context_vector_depends_on_both_sides_of_a_word(batch):
    words, lengths = batch
    encoder, table = cv.MTLSTM(6, 8), make_table()
    full = torch.full_like(lengths, words.shape[1])
    states = encoder(table(words), full)[0]
    for changed, at in ((0, -1), (-1, 0)):
        other = words.clone()
        other[:, changed] = (other[:, changed] + 1) % 12
        moved = (encoder(table(other), full)[0] - states)[:, at].abs().amax(-1)
        assert (moved > 0).all()
