package adversary

var descriptors []Case
var sockets []Case
var namespaces []Case
var terminal []Case
var processes []Case
var lifecycle []Case
