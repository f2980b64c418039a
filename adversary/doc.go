// Package adversary attacks a jail and says from outside whether it held.
//
// A [Case] is one attack. For each case the runner plants a fresh random
// canary outside the project directory, lets an unjailed process attack it
// (the control, which must succeed, or the case is skipped), plants another
// one, lets the same code attack it from inside the jail, and then looks, from
// outside, for an effect: the canary in what the attacker sent out, a file
// that changed, a message that arrived, a process that died. What the attacker
// claims decides nothing; its errno is only noted.
//
// The package knows nothing of how any jail works. It starts whatever command
// a [Jail] names and talks with the process inside through the standard input
// and output, so that any tool that runs a command can be judged by the same
// cases.
//
// Layout: one file per family of cases (traversal.go, symlinks.go, ...), each a
// slice of [Case]; run.go, session.go and scene.go are the outside half,
// attacker.go, step.go and inside.go the half that runs in the jail.
package adversary
