package adversary

var symlinks []Case
var procroot []Case
var environ []Case
var siblings []Case
var hardlinks []Case
var changes []Case
var metadata []Case
var watching []Case
var descriptors []Case
var sockets []Case
var namespaces []Case
var terminal []Case
var processes []Case
var lifecycle []Case
