from revbis.runs.seeds import Stream, derive_seed, episode_seeds


def test_the_seeds_of_recorded_results_stay() -> None:
    """As NumPy's SeedSequence mixes [seed, stream, position]; every run in results/ has them."""
    assert [derive_seed(1, stream, 0) for stream in Stream] == [
        1835504127,
        1189033389,
        1596810411,
        4010755824,
        3549136632,
        3025039489,
    ]
    assert derive_seed(1, Stream.REPLAY) == 1596810411
    assert derive_seed(7, Stream.EVALUATION, 2, 3) == 850689729


def test_eval_plays_no_episode_of_the_run() -> None:
    """Also if it is given the run's own seed."""
    streams = (Stream.TRAINING, Stream.NEIGHBOURS, Stream.YARDSTICKS)
    own = {seed for stream in streams for seed in episode_seeds(1, stream, 20)}
    own |= {
        derive_seed(1, Stream.EVALUATION, n, episode) for n in range(20) for episode in range(5)
    }
    assert own.isdisjoint(episode_seeds(1, Stream.COMMAND, 20))
