"""What the tests of the data scripts share."""


def failed(result, *words):
    """The command ended as errors should: status 1, and a last line on stderr with all `words`."""
    assert result.exit_code == 1, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    last = result.stderr.splitlines()[-1]
    assert last.startswith("error: "), result.stderr
    for word in words:
        assert str(word) in last
    return last
