"""What must hold for any sentences: no leak in either direction, padding that does not matter, words of any letters."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lrm_utils import check, text
from lrm_utils.models import bilm

WORDS = ["</s>", "peace", "war", "gold", "bank"]
words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(str.strip)


def model(layers=2, highways=1, dtype=torch.float64):
    torch.manual_seed(0)
    return bilm.BiLM([(1, 4), (2, 6)], 4, 8, layers=layers, highways=highways).to(dtype).eval()


@given(st.data())
def test_turning_twice_changes_nothing_and_padding_stays(data):
    lengths = torch.tensor(data.draw(st.lists(st.integers(1, 8), min_size=1, max_size=5)))
    x = torch.arange(len(lengths) * 8).view(len(lengths), 8)
    once = bilm.reverse(x, lengths)
    assert torch.equal(bilm.reverse(once, lengths), x)
    for row, turned, n in zip(x, once, lengths.tolist(), strict=True):
        assert turned[:n].tolist() == row[:n].tolist()[::-1]
        assert torch.equal(turned[n:], row[n:])


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("backward", [False, True])
def test_no_direction_sees_what_it_predicts_through_all_layers(layers, backward):
    net, spellings = model(layers), bilm.spell(WORDS)

    def states(x):
        half = net(spellings, x, torch.full((len(x),), x.shape[1]))[1:].chunk(2, -1)[int(backward)]
        return half.movedim(0, 2)

    check.causal(states, torch.randint(5, (2, 7), generator=torch.Generator().manual_seed(1)), backward=backward)


def test_a_letter_of_a_later_word_does_not_reach_earlier_states():
    net, lengths = model(), torch.tensor([4])
    index = torch.arange(4)[None]
    one, other = (net(bilm.spell(["the", "bank", "of", last]), index, lengths) for last in ("england", "englanx"))
    ahead, behind = one.chunk(2, -1), other.chunk(2, -1)
    assert torch.equal(ahead[0][:, :, :3], behind[0][:, :, :3])  # forward: nothing before the letter has moved
    assert not torch.equal(ahead[0][:, :, 3], behind[0][:, :, 3])
    assert (ahead[1][1:, :, :4] != behind[1][1:, :, :4]).any(-1).all()  # backward: everything before it has


@given(st.lists(st.lists(st.sampled_from(WORDS[1:]), min_size=1, max_size=6), min_size=2, max_size=4))
def test_a_sentence_has_the_same_layers_alone_and_in_any_batch(sentences):
    net, vocab = model(), text.Vocab(tuple(WORDS), torch.ones(5).numpy())
    lexicon = bilm.Lexicon(WORDS, vocab)

    def layers(some):
        batch = lexicon.collate(some)
        return net(lexicon.spellings, batch["words"], batch["lengths"])

    together = layers(sentences)
    for i, sentence in enumerate(sentences):
        alone = layers([sentence])
        torch.testing.assert_close(together[:, i, : alone.shape[2]], alone[:, 0], rtol=0, atol=1e-12)


@given(st.lists(words, min_size=1, max_size=6))
def test_any_word_has_a_spelling_and_a_vector(some):
    spellings = bilm.spell(some)
    assert spellings.shape == (len(some), 20)
    assert (spellings[:, 0] == bilm.BEGIN).all()
    assert ((spellings == bilm.END).sum(1) == 1).all()
    assert model().characters(spellings).isfinite().all()


@given(words)
def test_short_words_can_be_read_back_from_their_spelling(word):
    row = bilm.spell([word], longest=60)[0].tolist()
    assert bytes(b for b in row if b < 256).decode() == word


@given(st.integers(2, 400))
def test_zipfs_law_sums_to_one_and_falls(V):
    q = bilm.log_uniform(V)
    assert abs(q.sum().item() - 1) < 1e-9
    assert (q[:-1] > q[1:]).all()
