"""Sequence to sequence: options, errors, and small facts that can be computed by hand."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from lrm_utils.data import Splits, miniature
from lrm_utils.data.miniature import Translation
from lrm_utils.models import seq2seq as s2s
from lrm_utils.models.seq2seq import BOS, EOS, PAD, UNK, Pair


def pairs(*rows):
    """Pairs from tuples of source and target ids; BOS and EOS are added."""
    return [Pair(np.array(source), np.array([BOS, *target, EOS])) for source, target in rows]


class Scripted(nn.Module):
    """A model without a source: the log-probabilities of the next token depend on the tokens so far, by a table."""

    def __init__(self, table, V=6):
        super().__init__()
        self.table, self.V = table, V
        self.unused = nn.Parameter(torch.zeros(1))

    def start(self, source, lengths):
        return {"said": torch.zeros(len(source), 8, dtype=torch.long), "n": torch.zeros(len(source), dtype=torch.long)}

    def step(self, tokens, state, frozen=None):
        said, n = state["said"].clone(), state["n"]
        said[torch.arange(len(n)), n] = tokens
        logits = torch.full((len(n), self.V), -1e9)
        for row in range(len(n)):
            prefix = tuple(t for t in said[row, 1 : n[row] + 1].tolist())
            for token, p in self.table.get(prefix, {EOS: 1.0}).items():
                logits[row, token] = math.log(p)
        return logits, {"said": said, "n": n + 1}


ONE = (torch.tensor([[4]]), torch.tensor([1]))
TREE = {(): {4: 0.6, 5: 0.4}, (4,): {4: 0.5, EOS: 0.5}, (5,): {EOS: 1.0}}


def test_parallel_puts_bos_and_eos_around_the_target_and_keeps_the_alignment():
    splits = Splits((Translation(("a", "b"), ("x",), ((0, 0),)),), (), (Translation(("b", "new"), ("x", "y"), ()),))
    corpus = s2s.parallel(splits)
    assert corpus.train[0].target.tolist() == [BOS, corpus.target_vocab["x"], EOS]
    assert corpus.train[0].alignment == ((0, 0),)
    assert corpus.test[0].source.tolist() == [corpus.source_vocab["b"], UNK]
    assert corpus.test[0].target.tolist()[2] == UNK
    assert corpus.source_vocab.words[:4] == s2s.SPECIALS
    assert "y" not in corpus.target_vocab, "the vocabulary comes from the training part alone"


def test_a_joint_vocabulary_holds_the_words_of_both_sides_and_rare_ones_are_dropped():
    splits = Splits((Translation(("a", "a"), ("a", "x", "x"), ()),), (), ())
    corpus = s2s.parallel(splits, joint=True)
    assert corpus.source_vocab is not None
    assert set(corpus.source_vocab.words) == {*s2s.SPECIALS, "a", "x"} == set(corpus.target_vocab.words)
    assert corpus.source_vocab["a"] == corpus.target_vocab["a"]
    assert set(s2s.parallel(splits, min_count=2).target_vocab.words) == {*s2s.SPECIALS, "x"}


def test_collate_pads_both_sides_and_counts_bos_and_eos():
    batch = s2s.collate(pairs(((4, 5, 4), (5,)), ((4,), (5, 5, 5))))
    assert batch["source"].tolist() == [[4, 5, 4], [4, PAD, PAD]]
    assert batch["source_lengths"].tolist() == [3, 1]
    assert batch["target"].tolist() == [[BOS, 5, EOS, PAD, PAD], [BOS, 5, 5, 5, EOS]]
    assert batch["target_lengths"].tolist() == [3, 5]


def test_an_epoch_holds_every_pair_once_and_the_next_one_is_in_another_order():
    some = pairs(*(((4,) * n, (5,) * (n + i % 3)) for i, n in enumerate([1, 2, 3, 4] * 10)))
    batches = s2s.shuffled_batches(some, 8)
    one, two = list(batches(0)), list(batches(1))
    assert sum(len(b["source"]) for b in one) == len(some)
    assert sum(int(b["source_lengths"].sum()) for b in one) == sum(len(p.source) for p in some)
    assert [b["source"].tolist() for b in one] == [b["source"].tolist() for b in batches(0)]
    assert [b["target"].tolist() for b in one] != [b["target"].tolist() for b in two]
    assert max(int(b["source_lengths"].max() - b["source_lengths"].min()) for b in one) <= 2, "alike in length"


def test_masked_loss_is_the_sum_over_real_tokens():
    logits = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    target = torch.tensor([[1, 2, 3], [4, 0, 0]])
    total, count = s2s.masked_loss(logits, target, torch.tensor([3, 1]))
    logs = logits.log_softmax(-1)
    expected = -(logs[0, 0, 1] + logs[0, 1, 2] + logs[0, 2, 3] + logs[1, 0, 4])
    assert count == 4
    assert total.item() == pytest.approx(expected.item(), rel=1e-5)


def test_padding_that_is_masked_gets_no_gradient():
    logits = torch.randn(1, 3, 5, requires_grad=True)
    s2s.masked_loss(logits, torch.tensor([[1, 0, 0]]), torch.tensor([1]))[0].backward()
    assert logits.grad[0, 0].abs().sum() > 0
    assert logits.grad[0, 1:].abs().sum() == 0


def test_the_target_token_pad_counts_where_it_is_real():
    """The mask comes from the lengths, not from the id: a real token may have any id."""
    _, count = s2s.masked_loss(torch.zeros(1, 2, 5), torch.tensor([[0, 0]]), torch.tensor([2]))
    assert count == 2


@pytest.mark.parametrize(("embedded", "tied"), [(True, False), (False, False), (True, True), (False, True)])
def test_wirings_have_the_parameters_that_the_page_derives(embedded, tied):
    V, D = 11, 6
    model = s2s.Seq2Seq(V, V, D, embedded=embedded, tied=tied)
    E = D if embedded else V
    gru = 3 * D * (E + D + 2)
    tables = V * D if embedded else 0
    expected = (gru + tables) * (1 if tied else 2) + (D + 1) * V
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == expected
    assert (model.decoder is model.encoder.rnn) == tied
    assert (model.target_table is model.source_table) == tied


def test_one_hot_tables_do_not_learn():
    model = s2s.Seq2Seq(7, 8, 4, embedded=False)
    assert not model.source_table.weight.requires_grad
    assert torch.equal(model.target_table.weight, torch.eye(8))


def test_tied_sides_need_one_vocabulary_and_one_direction():
    with pytest.raises(ValueError, match="joint=True"):
        s2s.Seq2Seq(7, 8, 4, tied=True)
    with pytest.raises(ValueError, match="one direction"):
        s2s.Seq2Seq(8, 8, 4, tied=True, bidirectional=True)


def test_an_odd_width_has_no_halves():
    with pytest.raises(ValueError, match="even width"):
        s2s.Encoder(4, 7, bidirectional=True)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_last_state_is_that_of_the_last_word_in_either_direction(bidirectional):
    torch.manual_seed(0)
    encoder = s2s.Encoder(3, 4, bidirectional)
    x = torch.randn(2, 5, 3)
    states, last = encoder(x, torch.tensor([5, 2]))
    alone, last_alone = encoder(x[1:, :2], torch.tensor([2]))
    assert torch.allclose(last[1:], last_alone, atol=1e-6)
    assert torch.allclose(states[1:, :2], alone, atol=1e-6)
    assert states[1, 2:].abs().sum() == 0
    half = 2 if bidirectional else 4
    assert torch.allclose(last[:, :half], states[[0, 1], [4, 1], :half], atol=1e-6)
    if bidirectional:
        assert torch.allclose(last[:, half:], states[:, 0, half:], atol=1e-6), "backward ends at the first word"


@pytest.mark.parametrize("lengths", [[2, 0], [0, 0]])
def test_an_empty_source_is_refused(lengths):
    model = s2s.Seq2Seq(7, 8, 4)
    with pytest.raises(ValueError, match=f"source {lengths.index(0)} is empty"):
        model.start(torch.full((2, 2), PAD), torch.tensor(lengths))


def test_an_empty_batch_is_refused():
    with pytest.raises(ValueError, match="the batch is empty"):
        s2s.Seq2Seq(7, 8, 4).start(torch.zeros(0, 2, dtype=torch.long), torch.zeros(0, dtype=torch.long))


def test_pad_and_bos_are_never_said():
    logs = s2s.log_probabilities(torch.zeros(2, 6))
    assert torch.isinf(logs[:, [PAD, BOS]]).all()
    assert torch.allclose(logs[:, [EOS, UNK, 4, 5]], torch.tensor(0.25).log().expand(2, 4))


def test_greedy_takes_the_best_word_and_beams_the_best_sentence():
    """Greedily 4 (0.6), then 4 or EOS (0.3 each); the best sentence is `5 EOS` (0.4)."""
    model = Scripted(TREE)
    assert s2s.greedy(model, *ONE, limit=4)[0, 0] == 4
    ids, logp = s2s.beam_search(model, *ONE, width=2, limit=4, scores=True)
    assert ids.tolist() == [[5, EOS]] or ids.tolist() == [[5, EOS, PAD]]
    assert logp.item() == pytest.approx(math.log(0.4))


def test_the_length_penalty_prefers_the_longer_sentence_when_it_is_strong():
    """`4 4 EOS` has log 0.3 over three tokens, `5 EOS` log 0.4 over two."""
    table = TREE | {(4,): {4: 0.98, EOS: 0.02}}

    def best(alpha):
        return [t for t in s2s.beam_search(Scripted(table), *ONE, width=3, alpha=alpha)[0].tolist() if t]

    table[()] = {4: 0.45, 5: 0.55}
    assert best(0.0) == [5, EOS]
    assert best(3.0) == [4, 4, EOS]
    assert s2s.length_penalty(7, 2.0) == pytest.approx(4.0)
    assert s2s.length_penalty(7, 0.0) == 1.0


def test_a_sentence_keeps_its_length_when_another_overtakes_it():
    """The first has ended after 2 tokens; the second goes on with a fourth one, 4, and is the likelier one."""
    logits = torch.full((2, 6), -1e9)
    logits[:, 4] = 0.0
    total, length = torch.tensor([[0.2, 0.7]]).log(), torch.tensor([[2.0, 3.0]])
    parents, tokens, logp, lengths = s2s.continuations(total, length, torch.tensor([[True, False]]), logits, 0.0)
    assert (parents.tolist(), tokens.tolist(), lengths.tolist()) == ([[1, 0]], [[4, PAD]], [[4, 2]])
    assert torch.allclose(logp, total.flip(1))


def test_the_score_of_a_beam_is_not_divided_by_the_penalty():
    _, logp = s2s.beam_search(Scripted(TREE), *ONE, width=2, alpha=1.0, scores=True)
    assert logp.item() == pytest.approx(math.log(0.4))


def test_search_stops_at_the_limit_and_rows_that_ended_are_padded():
    endless = Scripted({(4,) * n: {4: 1.0} for n in range(8)})
    assert s2s.greedy(endless, *ONE, limit=3).tolist() == [[4, 4, 4]]
    assert s2s.beam_search(endless, *ONE, width=2, limit=3).tolist() == [[4, 4, 4]]
    ended = Scripted({(): {EOS: 1.0}})
    assert s2s.greedy(ended, *ONE, limit=3).tolist() == [[EOS]]


def test_a_beam_of_no_width_is_refused():
    with pytest.raises(ValueError, match="at least one beginning"):
        s2s.beam_search(Scripted(TREE), *ONE, width=0)


@pytest.mark.parametrize("search", [s2s.greedy, s2s.beam_search])
def test_a_translation_without_room_for_a_token_is_refused(search):
    with pytest.raises(ValueError, match="limit=0.* at least one token"):
        search(Scripted(TREE), *ONE, limit=0)


def test_log_probabilities_leave_the_scores_as_they_were():
    logits = torch.zeros(2, 6)
    s2s.log_probabilities(logits)
    assert not logits.any()


def test_translate_drops_pad_and_eos_and_keeps_the_order_of_the_pairs():
    torch.manual_seed(0)
    model, some = s2s.Seq2Seq(9, 9, 8), pairs(((4, 5), (6,)), ((5,), (7, 8)), ((8, 8, 8), (4,)))
    all_at_once = s2s.translate(model, some, limit=5)
    one_by_one = s2s.translate(model, some, batch_size=1, limit=5)
    assert all_at_once == one_by_one
    assert not {PAD, EOS} & {token for row in all_at_once for token in row}


def test_exact_wants_every_token_and_the_length():
    some = pairs(((4,), (5, 6)), ((4,), (5, 6)), ((4,), (5, 6)))
    assert s2s.exact([[5, 6], [5], [6, 5]], some).tolist() == [True, False, False]


def test_by_length_groups_by_the_source():
    some = pairs(((4,) * 2, (5,)), ((4,) * 3, (5,)), ((4,) * 4, (5,)))
    assert s2s.by_length([1, 0, 1], some, (2, 4, 6)) == [0.5, 1.0]


def test_the_rate_climbs_then_falls_to_nothing():
    factors = [s2s.ramp(step, 1000) for step in range(1000)]
    assert factors[0] == pytest.approx(0.01)
    assert max(factors) == pytest.approx(factors[99], rel=0.02)
    assert factors[-1] < 0.002
    assert s2s.ramp(499, 1000) == pytest.approx(0.501)


def model_and_batch():
    torch.manual_seed(0)
    batch = s2s.collate(pairs(((4, 5), (6, 7, 4)), ((5,), (7, 8, 5))))
    return s2s.Seq2Seq(9, 9, 8), (batch["source"], batch["source_lengths"], batch["target"][:, :-1])


def test_unroll_without_feeding_back_is_teacher_forcing():
    model, inputs = model_and_batch()
    assert torch.allclose(s2s.unroll(model, *inputs, feed=0.0), model(*inputs), atol=1e-6)


def test_unroll_feeds_the_models_own_words_back():
    model, inputs = model_and_batch()
    own = s2s.unroll(model, *inputs, feed=1.0)
    words = torch.cat([inputs[2][:, :1], own.argmax(-1)[:, :-1]], 1)
    assert torch.allclose(own, model(*inputs[:2], words), atol=1e-6)
    assert not torch.equal(words, inputs[2])


class Stubborn(nn.Module):
    """Always says 5, and remembers what it was given to read."""

    def start(self, source, lengths):
        self.heard = []
        return {}

    def step(self, tokens, state, frozen=None):
        self.heard.append(tokens)
        return torch.eye(6)[torch.full_like(tokens, 5)], state


def test_every_row_draws_at_every_step_whether_it_reads_its_own_word():
    torch.manual_seed(0)
    model = Stubborn()
    s2s.unroll(model, torch.full((400, 1), 4), torch.ones(400), torch.full((400, 9), 4), feed=0.3)
    own = torch.stack(model.heard, 1) == 5
    assert not own[:, 0].any(), "nobody has said the first token"
    share = own[:, 1:].float().mean(0)
    assert ((share > 0.2) & (share < 0.4)).all()
    assert 0.04 < (own[:, 1] & own[:, 2]).float().mean() < 0.14, "one step's draw does not tell the next one's"


def test_fed_back_words_may_be_kept_from_learning():
    def learned(learn):
        model, inputs = model_and_batch()
        s2s.unroll(model, *inputs, feed=1.0, learn=learn).square().sum().backward()
        return model.target_table.weight.grad.abs().sum(-1) > 0

    fed = learned(True)
    assert fed[BOS] and fed.sum() > 1
    assert learned(False).nonzero().flatten().tolist() == [BOS], "only the first token, which nobody fed back, learns"


def test_a_probability_of_feeding_back_outside_0_and_1_is_refused():
    model, inputs = model_and_batch()
    with pytest.raises(ValueError, match="no probability"):
        s2s.unroll(model, *inputs, feed=1.5)


def test_bleu_of_the_example_on_the_page():
    candidate, reference = "the cat the cat on the mat".split(), "the cat sat on the mat".split()
    assert s2s.bleu([candidate], [[reference]], order=3) == pytest.approx((5 / 7 * 3 / 6 * 1 / 5) ** (1 / 3))
    assert s2s.bleu([candidate], [[reference]]) == 0.0


def test_bleu_punishes_brevity_but_not_length():
    reference = list("abcdefgh")
    assert s2s.bleu([reference[:6]], [[reference]]) == pytest.approx(math.exp(1 - 8 / 6))
    assert s2s.bleu([list("ab")], [[list("abcd")]], order=2) == pytest.approx(math.exp(-1))


@pytest.mark.parametrize(("candidates", "references"), [([], []), ([["a"]], []), ([["a"]], [[]])])
def test_bleu_without_a_reference_is_refused(candidates, references):
    with pytest.raises(ValueError, match="reference"):
        s2s.bleu(candidates, references)


def test_french_needs_as_many_sentences_as_are_asked_for(monkeypatch):
    rows = [("Go.", "Va !"), ("Go.", "Marche."), ("Hi.", "Salut !"), ("Run!", "Cours !"), ("…", "…")]
    table = tuple(type("T", (), dict(english=e, french=f))() for e, f in rows)
    monkeypatch.setattr(s2s.data, "fra_eng", lambda: table)
    splits = s2s.french(train=1, validation=1, test=1)
    parts = [part[0].source for part in (splits.train, splits.validation, splits.test)]
    assert sorted(parts) == [("go",), ("hi",), ("run",)], "a sentence is in one part only, and empty ones in none"
    with pytest.raises(ValueError, match="fra-eng has 3 different"):
        s2s.french(train=3, validation=1, test=0)


def test_french_keeps_the_first_translation_of_sentences_that_are_not_too_long_in_parts_of_the_sizes_asked_for(
    monkeypatch,
):
    rows = [("a b", "x y"), ("a b", "x z"), ("a b c", "x"), ("b", "x y z"), *((w, w) for w in "cdefgh")]
    table = tuple(type("T", (), dict(english=e, french=f))() for e, f in rows)
    monkeypatch.setattr(s2s.data, "fra_eng", lambda: table)
    parts, again, other = (s2s.french(4, 1, 2, longest=2, seed=seed) for seed in (0, 0, 1))
    assert [len(part) for part in (parts.train, parts.validation, parts.test)] == [4, 1, 2]
    found = {pair.source: pair.target for part in (parts.train, parts.validation, parts.test) for pair in part}
    assert found == {("a", "b"): ("x", "y")} | {(w,): (w,) for w in "cdefgh"}
    assert parts == again != other


def test_a_small_model_learns_a_small_language_by_heart():
    import lrm_utils as lrm

    corpus = s2s.parallel(miniature.translation(train=40, validation=0, test=0))
    torch.manual_seed(0)
    model = s2s.Seq2Seq(len(corpus.source_vocab), len(corpus.target_vocab), 64)
    history = lrm.fit(model, s2s.shuffled_batches(corpus.train, 40), s2s.translation_loss, steps=120, lr=1e-2, clip=1.0)
    assert history.losses[-1] < 0.1 * history.losses[0]
    assert s2s.exact(s2s.translate(model, corpus.train), corpus.train).mean() > 0.8
