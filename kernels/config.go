package kernels

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// ConfigValue returns the value of one option in the kernel's configuration
// ("y", "m", a number, a string without its quotes), and "" when it is not set.
// Without a configuration file it returns an error.
func (k Kernel) ConfigValue(option string) (string, error) {
	if k.Config == "" {
		return "", fmt.Errorf("kernel %s comes without its configuration", k.Name)
	}
	f, err := os.Open(k.Config)
	if err != nil {
		return "", fmt.Errorf("read kernel configuration: %w", err)
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		if v, ok := strings.CutPrefix(sc.Text(), option+"="); ok {
			return strings.Trim(v, `"`), nil
		}
	}
	return "", sc.Err()
}
