# SPDX-License-Identifier: Apache-2.0
"""hvd.DistributedGradientTape for variables of Keras 3. They have no ref(), which Horovod calls, so it gets the variables of TensorFlow inside them."""
import functools
import sys


def _inner(value):
    """TensorFlow's variable inside a variable of Keras, also in lists; any other value as it is."""
    if isinstance(value, (list, tuple)):
        return [_inner(item) for item in value]
    return value.value if isinstance(value, getattr(sys.modules.get("keras"), "Variable", ())) else value


def with_keras(make):
    """Horovod's DistributedGradientTape() for both kinds of variables. Its methods find super() by the object's class, so this replaces methods of the
    object and does not make a subclass."""
    @functools.wraps(make)
    def DistributedGradientTape(gradtape, *arguments, **keywords):
        tape = make(gradtape, *map(_inner, arguments), **{name: _inner(value) for name, value in keywords.items()})
        gradient, split, register = tape.gradient, tape.get_local_and_global_gradients, tape.register_local_source

        def get_local_and_global_gradients(target, sources, *more, **named):
            sources = list(sources)
            given = {_inner(source).ref(): source for source in sources}
            return tuple([(given[source.ref()], grad) for source, grad in pairs] for pairs in split(target, _inner(sources), *more, **named))
        tape.gradient = lambda target, sources, *more, **named: gradient(target, _inner(list(sources)), *more, **named)
        tape.get_local_and_global_gradients = get_local_and_global_gradients
        tape.register_local_source = lambda source: register(_inner(source))
        return tape
    return DistributedGradientTape
