//go:build linux

package local

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// The guest's PID 1 inherits every orphan, and `sleep` waits for none: each
// would stay a zombie and use up the process limit. So the main process starts
// with SIGCHLD ignored, which has the kernel reap them and survives execve. No
// shell can be relied on for that (dash drops it), hence this program of a few
// instructions, position-independent, its sigaction at the end:
//
//	rt_sigaction(SIGCHLD, {SIG_IGN}, 0, 8); execve(argv[0], argv, envp); exit(127)
var initCode = map[string][]byte{
	"amd64": {
		0xb8, 0x0d, 0x00, 0x00, 0x00, // mov $13, %eax
		0xbf, 0x11, 0x00, 0x00, 0x00, // mov $17, %edi
		0x48, 0x8d, 0x35, 0x37, 0x00, 0x00, 0x00, // lea 55(%rip), %rsi
		0x31, 0xd2, // xor %edx, %edx
		0x41, 0xba, 0x08, 0x00, 0x00, 0x00, // mov $8, %r10d
		0x0f, 0x05, // syscall
		0x48, 0x8b, 0x7c, 0x24, 0x08, // mov 8(%rsp), %rdi
		0x48, 0x8d, 0x74, 0x24, 0x08, // lea 8(%rsp), %rsi
		0x48, 0x8b, 0x04, 0x24, // mov (%rsp), %rax
		0x48, 0x8d, 0x54, 0xc4, 0x10, // lea 16(%rsp,%rax,8), %rdx
		0xb8, 0x3b, 0x00, 0x00, 0x00, // mov $59, %eax
		0x0f, 0x05, // syscall
		0xbf, 0x7f, 0x00, 0x00, 0x00, // mov $127, %edi
		0xb8, 0x3c, 0x00, 0x00, 0x00, // mov $60, %eax
		0x0f, 0x05, // syscall
		0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00, // nopl
		1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	},
	"arm64": {
		0xc8, 0x10, 0x80, 0xd2, // mov x8, #134
		0x20, 0x02, 0x80, 0xd2, // mov x0, #17
		0xc1, 0x01, 0x00, 0x10, // adr x1, .+56
		0xe2, 0x03, 0x1f, 0xaa, // mov x2, xzr
		0xe3, 0x03, 0x7d, 0xb2, // mov x3, #8
		0x01, 0x00, 0x00, 0xd4, // svc #0
		0xe9, 0x03, 0x40, 0xf9, // ldr x9, [sp]
		0xe0, 0x07, 0x40, 0xf9, // ldr x0, [sp, #8]
		0xe1, 0x23, 0x00, 0x91, // add x1, sp, #8
		0x22, 0x0c, 0x09, 0x8b, // add x2, x1, x9, lsl #3
		0x42, 0x20, 0x00, 0x91, // add x2, x2, #8
		0xa8, 0x1b, 0x80, 0xd2, // mov x8, #221
		0x01, 0x00, 0x00, 0xd4, // svc #0
		0xe0, 0x1b, 0x40, 0xb2, // mov x0, #127
		0xa8, 0x0b, 0x80, 0xd2, // mov x8, #93
		0x01, 0x00, 0x00, 0xd4, // svc #0
		1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	},
}

// initName is what the guest's PID 1 is called until it has become the main
// process.
const initName = "plimsoll-init"

// initProgram returns the program above as an executable in memory.
func initProgram() (*os.File, error) {
	code := initCode[runtime.GOARCH]
	if code == nil {
		return nil, fmt.Errorf("no sandboxes on %s", runtime.GOARCH)
	}
	fd, err := unix.MemfdCreate(initName, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	file := os.NewFile(uintptr(fd), initName)
	if _, err := file.Write(initELF(code)); err != nil {
		file.Close()
		return nil, fmt.Errorf("write %s: %w", initName, err)
	}
	defer file.Close()
	// gVisor executes what is open for reading only.
	readonly, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", initName, err)
	}
	return readonly, nil
}

// initELF wraps code in the smallest static executable: one header, one segment.
func initELF(code []byte) []byte {
	const (
		base   = 0x400000
		header = 64 + 56
	)
	machine := map[string]uint16{"amd64": 62, "arm64": 183}[runtime.GOARCH]
	var b bytes.Buffer
	b.Write([]byte{0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	size := uint64(header + len(code))
	for _, field := range []any{
		uint16(2), machine, uint32(1), uint64(base + header), uint64(64), uint64(0), // type … section headers
		uint32(0), uint16(64), uint16(56), uint16(1), uint16(64), uint16(0), uint16(0), // flags … section count
		uint32(1), uint32(5), uint64(0), uint64(base), uint64(base), size, size, uint64(0x1000), // PT_LOAD, R+X
	} {
		// A bytes.Buffer takes everything.
		_ = binary.Write(&b, binary.LittleEndian, field)
	}
	b.Write(code)
	return b.Bytes()
}
