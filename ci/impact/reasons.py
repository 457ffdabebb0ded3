"""Why a test runs, why a path selects nothing, why everything runs: one closed set.

The meaning of a word is written once, here; `docs/impact.md` and the command
line print it.
"""

from __future__ import annotations

from ci.values import Word


class Scope(Word):
    """What a reason leads to."""

    EVERYTHING = "everything"
    TESTS = "tests"
    NOTHING = "nothing"


class Reason(Word):
    """A reason of a decision; `meaning` explains it, `scope` says what it leads to."""

    scope: Scope
    meaning: str

    def __new__(cls, word: str, scope: Scope = Scope.TESTS, meaning: str = "") -> Reason:  # noqa: PYI034 - an enum has no subclass
        """Make a member from its word, its scope and its meaning."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.scope = scope
        member.meaning = meaning
        member.__doc__ = meaning
        return member

    FORCED = "forced", Scope.EVERYTHING, "A label, a dispatch or `--force` asked for the whole stage."
    NO_MANIFEST = "no-manifest", Scope.EVERYTHING, "There is no manifest to decide on; record one with the nightly."
    MANIFEST_REFUSED = (
        "manifest-refused",
        Scope.EVERYTHING,
        "A named check of the manifest does not hold; the detail says what was found and what to do.",
    )
    BASELINE_UNAVAILABLE = (
        "baseline-unavailable",
        Scope.EVERYTHING,
        "git cannot give the base (shallow clone, force push), so no settings can be trusted; fetch more history.",
    )
    PLAN_UNUSABLE = (
        "plan-unusable",
        Scope.EVERYTHING,
        "The plan is absent, damaged, or was made for other commits; plan again for this commit.",
    )
    POLICY_CHANGED = (
        "policy-changed",
        Scope.EVERYTHING,
        "The stage's own row differs from the base's, so a change cannot switch its own gate off.",
    )
    SELECTOR_CHANGED = "selector-changed", Scope.EVERYTHING, "The code that selects and runs tests changed."
    WORKFLOW_CHANGED = (
        "workflow-changed",
        Scope.EVERYTHING,
        "A workflow or action that can run this stage changed in meaning.",
    )
    PYTEST_CONFIG = (
        "pytest-config",
        Scope.EVERYTHING,
        "pytest's own configuration changed in meaning, in any of the files that it reads.",
    )
    ENVIRONMENT = (
        "environment-changed",
        Scope.EVERYTHING,
        "A requirement, lock, build or container file changed: the recorded environment is another one.",
    )
    SUBMODULE = (
        "submodule-changed",
        Scope.EVERYTHING,
        "A submodule points to another commit; its content is not tracked.",
    )
    LINK = "link-changed", Scope.EVERYTHING, "A symbolic link appeared, went or points elsewhere."
    SHADOWS = (
        "shadows-module",
        Scope.EVERYTHING,
        "A new Python file can be imported under the name of an installed or existing module.",
    )
    UNKNOWN_NATIVE = (
        "unknown-native",
        Scope.EVERYTHING,
        "A native source, header or build file that no dependency file names; build with dependency files on.",
    )
    INVISIBLE_DATA = (
        "invisible-data",
        Scope.EVERYTHING,
        "A data file of a kind that C libraries open unseen; declare it under the row's `data` if every read is seen.",
    )
    UNKNOWN_FILE = (
        "unknown-file",
        Scope.EVERYTHING,
        "No record says who uses this file; list it under the row's `documentation` or `data` if no test can need it.",
    )
    OUTSIDE = (
        "outside-root",
        Scope.EVERYTHING,
        "A file outside the planned folder changed; nothing recorded its readers.",
    )

    CONFTEST = "conftest", Scope.TESTS, "A `conftest.py` at or above the test changed."
    PACKAGE_INIT = "package-init", Scope.TESTS, "An `__init__.py` at or above the test, or that it imports, changed."
    TEST_CHANGED = "test-changed", Scope.TESTS, "The test itself, or a helper that it ran, changed in its test file."
    TEST_FILE = "test-file", Scope.TESTS, "The test's file changed at module level."
    NEW_TEST = "new-test", Scope.TESTS, "The manifest does not know this test."
    BODY = "body-executed", Scope.TESTS, "The test executed a function whose body changed."
    MODULE_LEVEL = (
        "module-level",
        Scope.TESTS,
        "The test imports a module that changed outside function bodies: a constant, signature, docstring, definition.",
    )
    MENTIONED_NAME = (
        "mentioned-name",
        Scope.TESTS,
        "The test executed code that mentions a name which changed at module level.",
    )
    NO_EVIDENCE = (
        "no-evidence",
        Scope.TESTS,
        "A function changed that no test was seen to execute, so everyone who imports it runs.",
    )
    NEW_MODULE = "new-module", Scope.TESTS, "Code in the test's import closure names a module that now exists."
    REFLECTION = (
        "reflection",
        Scope.TESTS,
        "A definition was added to a module that the test imports, together with code that looks names up dynamically.",
    )
    SOURCE_READ = "source-read", Scope.TESTS, "The test read the text of a source file that changed."
    DATA_READ = "data-read", Scope.TESTS, "The test opened a file that changed."
    FOLDER_LISTED = "folder-listed", Scope.TESTS, "The test listed a folder whose entries changed."
    PATH_PROBED = "path-probed", Scope.TESTS, "The test asked whether a path exists that appeared or went."
    NATIVE = "native-loaded", Scope.TESTS, "The test loaded a library built from a source that changed."
    MODE = "mode-changed", Scope.TESTS, "The test uses a file whose permissions changed."
    DRIFTED = (
        "drifted",
        Scope.TESTS,
        "What the test depends on changed since the manifest, and this change touches what it may depend on now.",
    )
    OPAQUE = "opaque", Scope.TESTS, "What the test depends on could not be recorded; it always runs."
    NOT_PASSED = "not-passed", Scope.TESTS, "The test did not pass when the manifest was recorded; it always runs."

    DOCUMENTATION = "documentation", Scope.NOTHING, "A path that the row, or the tool, lists as documentation."
    SAME_MEANING = "same-meaning", Scope.NOTHING, "Comments, layout or a setting that no test can see."
    PLAIN_UNEXECUTED = (
        "plain-unexecuted",
        Scope.NOTHING,
        "A body that no test executed, in a file that the row declares `plain`.",
    )
    UNUSED_DEFINITION = (
        "unused-definition",
        Scope.NOTHING,
        "A function was added whose name nothing mentions, where nothing looks names up dynamically.",
    )
    NOT_IMPORTED = "not-imported", Scope.NOTHING, "A Python file that no test of this stage imports, executes or reads."
    DATA_UNREAD = "data-unread", Scope.NOTHING, "Declared data that no test of this stage reads."
    OTHER_WORKFLOW = "other-workflow", Scope.NOTHING, "A workflow that cannot run this stage."
    UNTOUCHED = "untouched", Scope.NOTHING, "Nothing that the test depends on changed."
