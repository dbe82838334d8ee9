"""How deep the kernel lies below a run."""

from benchmarks.frames import observed_run


def test_no_writer_calls_the_kernel_and_few_frames_lie_above_it() -> None:
    stacks = observed_run().stacks
    assert stacks
    for stack in stacks:
        names = [frame.f_code.co_qualname for frame in stack]
        assert (names[0], names[-1]) == ("PipelineHandle.run", "step_stage")
        assert len(names[names.index("TasksEngine.compute") :]) <= 12, names
        files = {frame.f_code.co_filename for frame in stack}
        assert not [file for file in files if "/datafiles/" in file], "what stores rows computes none"
